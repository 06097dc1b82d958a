package main

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/fx"
	admission "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/pause"
	"slipway.io/slipway/store"
)

// installed keeps what a server found out about the objects that an administrator installs: admission policies, and the
// registration of webhooks. The server has no right to write them. Each change is logged, and /readyz shows the last
// state.
type installed struct {
	log *slog.Logger

	mu       sync.Mutex
	problems map[string]string
}

func newInstalled(log *slog.Logger) *installed {
	return &installed{log: log, problems: map[string]string{}}
}

// set records what is wrong with a part; "" for nothing.
func (i *installed) set(ctx context.Context, part, problem string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	was := i.problems[part]
	if was == problem {
		return
	}
	i.problems[part] = problem
	if problem == "" {
		i.log.InfoContext(ctx, "what administrators install is complete again", "part", part)
		return
	}
	i.log.WarnContext(ctx, "what administrators install is incomplete", "part", part, "problem", problem)
}

// Err returns everything that is wrong.
func (i *installed) Err() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	var all []error
	for _, part := range slices.Sorted(maps.Keys(i.problems)) {
		if problem := i.problems[part]; problem != "" {
			all = append(all, errors.New(problem))
		}
	}
	return errors.Join(all...)
}

// installedInterval is how often what administrators install is checked.
const installedInterval = time.Minute

// checking returns an endpoint's Publish that only checks what is registered.
func (i *installed) checking(part string, check func(context.Context, admission.WebhookClientConfig) (string,
	error)) func(context.Context, admission.WebhookClientConfig) (time.Duration, error) {
	return func(ctx context.Context, client admission.WebhookClientConfig) (time.Duration, error) {
		problem, err := check(ctx, client)
		if err == nil {
			i.set(ctx, part, problem)
		}
		return installedInterval, err
	}
}

// installedModule checks the admission policies as long as the server runs.
var installedModule = fx.Module("installed",
	fx.Provide(newInstalled),
	fx.Invoke(func(lc fx.Lifecycle, home *store.Store, config *rest.Config, s settings.Settings, found *installed) {
		gate := newGate(home, config, s.Gate)
		inBackground(lc, func(ctx context.Context) {
			for ctx.Err() == nil {
				// after an error, /readyz says that the cluster is unreachable
				if problems, err := gate.CheckPolicies(ctx); err == nil {
					found.set(ctx, "policies", strings.Join(problems, "; "))
				}
				_ = pause.For(ctx, installedInterval)
			}
		})
	}),
)
