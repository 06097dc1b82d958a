package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
	"go.uber.org/fx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/activities/centre"
	"slipway.io/slipway/activities/versions"
	"slipway.io/slipway/api/rollouts"
	"slipway.io/slipway/cli/guard"
	"slipway.io/slipway/cli/settings"
	rolloutcontroller "slipway.io/slipway/controller/rollout"
	servingcontroller "slipway.io/slipway/controller/serving"
	"slipway.io/slipway/deploy/rbac"
	"slipway.io/slipway/kube"
	own "slipway.io/slipway/kube/account"
	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/pause"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/kruise/reference"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/store"
	"slipway.io/slipway/temporal/presence"
)

// homeModule provides the home cluster. Servers and the centre require credentials for it.
var homeModule = fx.Module("home",
	fx.Provide(
		func(config *rest.Config, s settings.Settings) (*store.Store, error) {
			return store.New(config, s.Namespace, s.ServingNamespace)
		},
		func(home *store.Store, temporal client.Client, reader *versions.Reader,
			protection *kube.ProtectionReader, s settings.Settings) *centre.Activities {
			a := centre.NewActivities(home, temporal, reader, s.RecordLimit)
			a.CheckAuthors(protection.Unchecked, s.RequireGate)
			return a
		},
		newOtherReleaser,
	),
	fx.Invoke(func(lc fx.Lifecycle, home *store.Store, s settings.Settings, log *slog.Logger) {
		if s.EngineName != "" {
			home.SetEngineName(s.EngineName)
		}
		setup := store.NewSetup(home, s.InstallCRDs, log)
		lc.Append(fx.Hook{OnStart: setup.Start, OnStop: setup.Stop})
	}),
)

// servingControllerModule runs the controller for the servings of the home cluster.
var servingControllerModule = fx.Module("serving-controller",
	fx.Invoke(func(lc fx.Lifecycle, objects dynamic.Interface, p BackendParts) {
		controller := servingcontroller.New(p.Store, objects, p.Temporal, servingcontroller.Options{
			Presence: presence.Finder{Temporal: p.Temporal, Namespace: p.Settings.TemporalNamespace},
			Servings: p.Settings.ServingNamespace, UnreachableBudget: p.Settings.UnreachableBudget, Log: p.Log,
		})
		lc.Append(fx.Hook{OnStart: controller.Start, OnStop: controller.Stop})
	}),
)

// controllerParts are the dependencies of the controllers.
type controllerParts struct {
	BackendParts
	Typed      kube.Typed
	Objects    dynamic.Interface
	Protection *kube.ProtectionReader
	Registry   *prometheus.Registry
}

// rolloutControllersModule runs the controllers for the Rollouts and TrafficRoutings of the home cluster. They belong
// to workers, since they hold workloads: the account of a server has no right to do that.
var rolloutControllersModule = fx.Module("rollout-controllers",
	fx.Invoke(func(lc fx.Lifecycle, p controllerParts) {
		notHeld := prometheus.NewCounter(prometheus.CounterOpts{Name: "slipway_changes_not_held_total",
			Help: "Changes of pod templates that moved pods although a Rollout names the workload."})
		p.Registry.MustRegister(notHeld)
		options := rolloutcontroller.Options{
			CountNotHeld: notHeld.Inc,
			Unchecked:    p.Protection.Unchecked,
			Events:       p.Typed.CoreV1(),
			Namespaces:   p.Settings.WatchNamespaces,
			Served: func(resource schema.GroupVersionResource) bool {
				return watch.Served(p.Typed.Discovery(), resource)
			},
			OtherController: p.OtherReleaser,
			Protection:      p.Protection.Guards,
			RequireGate:     p.Settings.RequireGate,
			Log:             p.Log,
		}
		controller := rolloutcontroller.New(p.Store, p.Objects, rollouts.NewObjects(newBackend(p.BackendParts),
			p.Settings.RecordLimit), options)
		shared := rolloutcontroller.NewTrafficRoutings(p.Store, p.Objects, options)
		lc.Append(fx.Hook{OnStart: controller.Start, OnStop: controller.Stop})
		lc.Append(fx.Hook{OnStart: shared.Start, OnStop: shared.Stop})
	}),
)

// otherReleaser reports whether another product also releases the workloads that Rollouts name on the home cluster.
type otherReleaser func(context.Context) (reference.OtherController, error)

func newOtherReleaser(typed kube.Typed, objects dynamic.Interface) otherReleaser {
	cluster := kube.NewCluster(typed, objects, nil)
	return func(ctx context.Context) (reference.OtherController, error) {
		found, err := cluster.KruiseRollouts(ctx)
		if len(found) > 0 || err != nil {
			return reference.OtherControllerOf(found), err
		}
		if exists, ours, err := cluster.RolloutsDefinition(ctx); !exists || ours || err != nil {
			return reference.OtherController{}, err
		}
		return reference.OtherController{Message: reference.ForeignDefinition}, nil
	}
}

// guardRetryInterval is the pause before retrying on a cluster that did not respond or does not have the Rollout
// definition yet.
const guardRetryInterval = 10 * time.Second

// guardModule installs the guard in the API server, with the credentials that the process was started with: its own
// account has no rights on policies. The engine starts even if that fails: preflights report what is not guarded.
var guardModule = fx.Module("guard",
	fx.Invoke(func(lc fx.Lifecycle, mine *own.Own, s settings.Settings, as role, log *slog.Logger) {
		if !s.InstallGuard {
			return
		}
		inBackground(lc, func(ctx context.Context) {
			installGuard(ctx, log, func(ctx context.Context) (message string, done bool, err error) {
				list, err := guardList(ctx, mine, s, as)
				if err != nil {
					return "", false, err
				}
				return guard.Ensure(ctx, mine.Credentials(), guard.EnsureOptions{List: list,
					Gate: s.Gate != settings.GateOff})
			})
		})
	}),
)

func installGuard(ctx context.Context, log *slog.Logger, ensure func(context.Context) (string, bool, error)) {
	for last := ""; ; {
		message, done, err := ensure(ctx)
		level := slog.LevelInfo
		switch {
		case ctx.Err() != nil:
			return
		case failure.Is(err, failure.Refused): // Kruise Rollouts may be removed later
			message, level = err.Error(), slog.LevelWarn
		case err != nil && kube.Classify(err) != kube.Unreachable:
			log.WarnContext(ctx, "cannot install the guard", "error", err)
			return
		case err != nil:
			message = last
		}
		if message != last {
			log.Log(ctx, level, "guard", "status", message)
			last = message
		}
		// the Rollout definition may be applied later
		if done && err == nil || pause.For(ctx, guardRetryInterval) != nil {
			return
		}
	}
}

// rightsRetryInterval is the pause before retrying with a cluster that did not respond.
const rightsRetryInterval = 5 * time.Second

// rightsModule logs at startup which rights of deploy/rbac the account of a process of the centre lacks. Some are only
// needed by a release days later; without others the engine would see less without any error.
func rightsModule(of ...func(settings.Settings) ([]manifestRights, error)) fx.Option {
	return fx.Module("rights",
		fx.Invoke(func(lc fx.Lifecycle, typed kube.Typed, s settings.Settings, log *slog.Logger) error {
			var wanted []manifestRights
			for _, rights := range of {
				more, err := rights(s)
				if err != nil {
					return err
				}
				wanted = append(wanted, more...)
			}
			inBackground(lc, func(ctx context.Context) {
				logMissingRights(ctx, kube.NewPermissions(typed), wanted, log)
			})
			return nil
		}),
	)
}

// manifestRights are the rights that a manifest grants.
type manifestRights struct {
	manifest string
	rights   []kube.Permission
	// group is the API group that the rights are about. If the account has no right in this group, the feature is not
	// used and none is reported. "" reports all.
	group string
}

// wanted reports whether the account is meant to have these rights.
func (w manifestRights) wanted(denied []kube.Permission) bool {
	return w.group == "" || slices.ContainsFunc(w.rights, func(p kube.Permission) bool {
		return p.Group == w.group && !slices.Contains(denied, p)
	})
}

// rightsOf returns the rights that a manifest of deploy/rbac grants with these settings, without those of some roles.
func rightsOf(s settings.Settings, name string, manifest []byte, omit ...string) (manifestRights, error) {
	all := manifestRights{manifest: "deploy/rbac/" + name}
	roles, err := kube.Rights(manifest, accountNames(s), s.WatchNamespaces...)
	for role, rights := range roles {
		if !slices.Contains(omit, role) {
			all.rights = append(all.rights, rights...)
		}
	}
	return all, err
}

// serverRights returns the rights that a server needs with these settings.
func serverRights(s settings.Settings) ([]manifestRights, error) {
	always, err := rightsOf(s, "server.yaml", rbac.Server)
	if err != nil {
		return nil, err
	}
	written, err := rightsOf(s, "by-server.yaml", rbac.ByServer, notByServer(s)...)
	return []manifestRights{always, written}, err
}

// notByServer returns the roles of by-server.yaml that a server with these settings does not need.
func notByServer(s settings.Settings) (omit []string) {
	registers := s.WebhookListen != "" && s.RegisterWebhooks
	if !registers || s.WebhookCertFile != "" {
		omit = append(omit, "slipway-server-certificate")
	}
	if !registers {
		omit = append(omit, "slipway-webhooks")
	}
	if !s.InstallCRDs {
		omit = append(omit, "slipway-definitions")
	}
	return omit
}

// centreRights returns the rights that a worker of the centre needs with these settings.
func centreRights(s settings.Settings) ([]manifestRights, error) {
	always, err := rightsOf(s, "centre.yaml", rbac.Centre)
	if err != nil {
		return nil, err
	}
	rollouts, err := rightsOf(s, "rollouts.yaml", rbac.Rollouts)
	rollouts.group = v1beta1.GroupVersion.Group
	return []manifestRights{always, rollouts}, err
}

func logMissingRights(ctx context.Context, account *kube.Permissions, wanted []manifestRights, log *slog.Logger) {
	for _, w := range wanted {
		denied, err := account.Denied(ctx, w.rights)
		for err != nil && kube.Classify(err) == kube.Unreachable && ctx.Err() == nil {
			_ = pause.For(ctx, rightsRetryInterval)
			denied, err = account.Denied(ctx, w.rights)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			log.WarnContext(ctx, "cannot read the rights of the account", "error", err)
			return
		case len(denied) > 0 && w.wanted(denied):
			log.WarnContext(ctx, "the account lacks rights: apply "+w.manifest+", or grant them by other means",
				"lacks", permissionsText(denied))
		}
	}
}

// permissionsText formats permissions as text.
func permissionsText(denied []kube.Permission) string {
	var parts []string
	for _, p := range denied {
		resource := schema.GroupResource{Group: p.Group, Resource: strings.TrimSuffix(p.Resource+"/"+p.Subresource, "/")}
		where := "in all namespaces"
		if p.Namespace != metav1.NamespaceAll {
			where = "in namespace " + p.Namespace
		}
		parts = append(parts, p.Verb+" "+strings.TrimSpace(resource.String()+" "+p.Name)+" "+where)
	}
	slices.Sort(parts)
	return strings.Join(slices.Compact(parts), ", ")
}
