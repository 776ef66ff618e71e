/* What a server of TVM RPC is sent to outlive its clients. TVM's server has a process for each session, and ends for good
 * when one of these ends badly: as it does that writes its answer to a client which is gone. A thread of that process
 * ends it well as soon as the connection is, also while it computes for nobody.
 *
 * It is sent as a library, and so are the options of the connection: a machine that is cut off does not say so.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

/* TVMFFIAny and the convention by which functions are called. */
typedef struct {
    int32_t type, unused;
    int64_t number;
} Any;
enum { IS_NUMBER = 1 };

enum { MOST_DESCRIPTORS = 4096 };
/* Of a client whose machine does not answer: it is asked after so many seconds, so many times. */
enum { SILENCE_S = 10, AGAIN_S = 5, TIMES = 4 };

static int connection = -1; /* that is watched */

/* Return the connection that this call came by: a server may have another one, to a tracker, of which it heard nothing
 * since the session began. */
static int find_connection(void) {
    int found = -1;
    uint32_t least = UINT32_MAX;
    for (int fd = 0; fd < MOST_DESCRIPTORS; fd++) {
        struct tcp_info info;
        socklen_t size = sizeof info;
        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) || info.tcpi_state != TCP_ESTABLISHED) continue;
        if (info.tcpi_last_data_recv < least) {
            least = info.tcpi_last_data_recv;
            found = fd;
        }
    }
    return found;
}

static void ask_for_silent_clients(void) {
    int on = 1, idle = SILENCE_S, again = AGAIN_S, times = TIMES, most_ms = (SILENCE_S + AGAIN_S * TIMES) * 1000;
    setsockopt(connection, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(connection, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(connection, IPPROTO_TCP, TCP_KEEPINTVL, &again, sizeof again);
    setsockopt(connection, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
    setsockopt(connection, IPPROTO_TCP, TCP_USER_TIMEOUT, &most_ms, sizeof most_ms);
}

static void *watch(void *unused) {
    struct pollfd client = {connection, POLLRDHUP, 0};
    while (poll(&client, 1, -1) <= 0) continue;
    _exit(0);
    return unused;
}

/* () -> whether the process ends with its client from now on. */
int __tvm_ffi_fusion_watch(void *self, const Any *arguments, int32_t count, Any *result) {
    pthread_t thread;
    (void)self, (void)arguments, (void)count;
    if (connection < 0) connection = find_connection();
    int watched = connection >= 0 && pthread_create(&thread, NULL, watch, NULL) == 0;
    if (watched) {
        ask_for_silent_clients();
        pthread_detach(thread);
    }
    *result = (Any){.type = IS_NUMBER, .number = watched};
    return 0;
}
