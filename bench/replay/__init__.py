"""What the compiler makes of each model, as text: two trees are compared by it, as after a rebuild that changes no
kernel."""
