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
	"slipway.io/slipway/release/failure"
)

// guardAgain is how long to wait before the guard is installed once more on a cluster that didn't answer, or doesn't know Rollouts yet.
const guardAgain = 10 * time.Second

// guardModule installs the guard in the API server. A cluster that doesn't take it is no reason not to start: preflights say what isn't
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
		told, done, err := guard.Ensure(ctx, config, gate)
		if err == nil && told != last {
			log.InfoContext(ctx, "guard", "said", told)
			last = told
		}
		switch {
		case done && err == nil:
			return
		case err == nil: // whoever applies the definition of Rollouts may be slower
		case ctx.Err() != nil:
			return
		case failure.Is(err, failure.Refused): // somebody may remove what is in the way
			if said := err.Error(); said != last {
				log.WarnContext(ctx, "guard", "said", said)
				last = said
			}
		case kube.Classify(err) != kube.Unreachable:
			log.WarnContext(ctx, "the guard could not be installed", "error", err)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(guardAgain):
		}
	}
}
