"""The data plane: frames over Unix-domain and TCP sockets, between processes that prove a shared secret first."""
