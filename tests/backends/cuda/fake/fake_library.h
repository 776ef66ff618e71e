// What the libraries of tests share: the memory and the streams of the fake driver, numbers of the types that they compute
// with, and functions that are to fail.
#pragma once
#include <cstdint>
#include <cstring>
#include <map>
#include <string>

extern "C" int fake_enqueue(void* stream, void (*run)(void*), void* data);
extern "C" void* fake_memory(uint64_t address, size_t size);

namespace {
constexpr int SUCCESS = 0;
std::string log_text;
std::map<std::string, int> failures;  // by function: the status of its next call

int failed(const char* name) {
  auto found = failures.find(name);
  if (found == failures.end()) return SUCCESS;
  const int status = found->second;
  failures.erase(found);
  return status;
}

float widened(uint16_t bits, bool is_brain) {
  uint32_t made;
  if (is_brain) {
    made = static_cast<uint32_t>(bits) << 16;
  } else {
    _Float16 half;
    std::memcpy(&half, &bits, 2);
    return static_cast<float>(half);
  }
  float value;
  std::memcpy(&value, &made, 4);
  return value;
}

float read(const char* at, int type, int64_t place) {
  if (type == 0) return reinterpret_cast<const float*>(at)[place];
  return widened(reinterpret_cast<const uint16_t*>(at)[place], type == BRAIN);
}

void write(char* at, int type, int64_t place, float value) {
  if (type == 0) {
    reinterpret_cast<float*>(at)[place] = value;
  } else if (type == 2) {
    const auto half = static_cast<_Float16>(value);
    std::memcpy(at + 2 * place, &half, 2);
  } else {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const auto rounded = static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
    std::memcpy(at + 2 * place, &rounded, 2);
  }
}
}  // namespace
