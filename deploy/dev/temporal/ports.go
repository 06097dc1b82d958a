package main

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"go.temporal.io/server/common/primitives"
)

// servicePorts holds the gRPC port of each of the server's services.
type servicePorts map[primitives.ServiceName]int

// choosePorts checks that the requested ports are free, because the errors of the server and its UI are unclear
// otherwise, and finds ports for the internal services.
func choosePorts(o options) (servicePorts, error) {
	listeners := make([]net.Listener, 0, 5)
	// All stay open until the end, so that no port is given out twice.
	defer func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}()
	open := func(port int, flagName string) (int, error) {
		l, err := net.Listen("tcp", address(port))
		if errors.Is(err, syscall.EADDRINUSE) {
			return 0, fmt.Errorf("port %d on %s is in use by another process: choose another with %s", port, listenIP,
				flagName)
		}
		if err != nil {
			return 0, fmt.Errorf("listen for %s: %w", flagName, err)
		}
		listeners = append(listeners, l)
		return l.Addr().(*net.TCPAddr).Port, nil
	}
	ports := servicePorts{}
	var err error
	if ports[primitives.FrontendService], err = open(o.Port, "--port"); err != nil {
		return nil, err
	}
	if _, err := open(o.UIPort, "--ui-port"); err != nil {
		return nil, err
	}
	for _, name := range o.services() {
		if name == primitives.FrontendService {
			continue
		}
		if ports[name], err = open(0, "an internal service"); err != nil {
			return nil, err
		}
	}
	return ports, nil
}
