package main

import (
	"context"
	"log/slog"
	"time"

	"go.uber.org/fx"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/cli/guard"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/pause"
	"slipway.io/slipway/release/failure"
)

// guardRetryInterval is the pause before retrying on a cluster that did not respond or does not have the Rollout
// definition yet.
const guardRetryInterval = 10 * time.Second

// guardModule installs the guard in the API server. The engine starts even if that fails: preflights report what is not
// guarded.
var guardModule = fx.Module("guard",
	fx.Invoke(func(lc fx.Lifecycle, config *rest.Config, s settings.Settings, log *slog.Logger) {
		if !s.InstallGuard {
			return
		}
		ctx, cancel := context.WithCancel(context.Background())
		lc.Append(fx.StartStopHook(func() { go installGuard(ctx, config, s.Gate != settings.GateOff, log) }, cancel))
	}),
)

func installGuard(ctx context.Context, config *rest.Config, gate bool, log *slog.Logger) {
	for last := ""; ; {
		message, done, err := guard.Ensure(ctx, config, gate)
		if err == nil && message != last {
			log.InfoContext(ctx, "guard", "status", message)
			last = message
		}
		switch {
		case done && err == nil:
			return
		case err == nil: // the Rollout definition may be applied later
		case ctx.Err() != nil:
			return
		case failure.Is(err, failure.Refused): // Kruise Rollouts may be removed later
			if reason := err.Error(); reason != last {
				log.WarnContext(ctx, "guard", "status", reason)
				last = reason
			}
		case kube.Classify(err) != kube.Unreachable:
			log.WarnContext(ctx, "cannot install the guard", "error", err)
			return
		}
		if pause.For(ctx, guardRetryInterval) != nil {
			return
		}
	}
}
