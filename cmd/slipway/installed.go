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

// How often what administrators install is checked: as long as it is complete, and while something is missing. The
// first check waits for as long, because `slipway dev` installs the guard itself.
const installedInterval, missingInterval = time.Minute, 10 * time.Second

// checking returns an endpoint's Publish that only checks what is registered.
func (i *installed) checking(part string, check func(context.Context, admission.WebhookClientConfig) (string,
	error)) func(context.Context, admission.WebhookClientConfig) (time.Duration, error) {
	return func(ctx context.Context, client admission.WebhookClientConfig) (time.Duration, error) {
		problem, err := check(ctx, client)
		if err == nil {
			i.set(ctx, part, problem)
		}
		return intervalFor(problem), err
	}
}

func intervalFor(problem string) time.Duration {
	if problem != "" {
		return missingInterval
	}
	return installedInterval
}

// installedModule checks the admission policies as long as the server runs.
var installedModule = fx.Module("installed",
	fx.Provide(newInstalled),
	fx.Invoke(func(lc fx.Lifecycle, home *store.Store, config *rest.Config, s settings.Settings, found *installed) {
		mode := s.Gate
		if mode == settings.GateAuto && s.WebhookListen == "" { // no webhook holds workloads then
			mode = settings.GatePolicy
		}
		gate := newGate(home, config, mode)
		inBackground(lc, func(ctx context.Context) {
			for again := missingInterval; pause.For(ctx, again) == nil; {
				problems, err := gate.CheckPolicies(ctx)
				if err != nil { // /readyz says that the cluster is unreachable
					again = missingInterval
					continue
				}
				problem := strings.Join(problems, "; ")
				found.set(ctx, "policies", problem)
				again = intervalFor(problem)
			}
		})
	}),
)
