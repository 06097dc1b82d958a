package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"

	"go.uber.org/fx"

	"slipway.io/slipway/cli/app"
)

// listener is an API on one address; nil where it is not served.
type listener struct {
	// what is served, as the log has it, and where: attributes.
	what  string
	where []any
	net.Listener
	serve func(net.Listener) error
	end   func(ctx context.Context) error
	log   *slog.Logger
	down  fx.Shutdowner
}

func (l *listener) start(context.Context) error {
	if l == nil {
		return nil
	}
	go func() {
		if err := l.serve(l.Listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			l.log.Error(l.what+" is not served any more", append(l.where, "error", err)...)
			_ = l.down.Shutdown(fx.ExitCode(app.ExitFailure))
		}
	}()
	l.log.Info("serving "+l.what, l.where...)
	return nil
}

func (l *listener) stop(ctx context.Context) error {
	if l == nil {
		return nil
	}
	return l.end(ctx)
}
