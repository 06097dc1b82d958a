package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.uber.org/fx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/activities/centre"
	"slipway.io/slipway/activities/versions"
	"slipway.io/slipway/api/rollouts"
	"slipway.io/slipway/api/webhook"
	"slipway.io/slipway/cli/guard"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/cli/version"
	rolloutcontroller "slipway.io/slipway/controller/rollout"
	servingcontroller "slipway.io/slipway/controller/serving"
	"slipway.io/slipway/deploy/rbac"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/pause"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/kruise/reference"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/reload"
	"slipway.io/slipway/store"
	"slipway.io/slipway/temporal/presence"
)

// newRESTConfig returns the configuration of all clients for the cluster of this process.
func newRESTConfig(s settings.Settings, traces *tracing) (*rest.Config, error) {
	config, err := kube.Connect(kube.Options{Kubeconfig: s.Kubeconfig, Context: s.Context, QPS: s.KubeQPS,
		Burst: s.KubeBurst, UserAgent: version.UserAgent()})
	if err == nil {
		config.Wrap(traces.transport)
	}
	return config, err
}

// homeModule provides the home cluster. Servers and the centre require credentials for it.
var homeModule = fx.Module("home",
	fx.Provide(
		func(config *rest.Config, s settings.Settings) (*store.Store, error) {
			return store.New(config, s.Namespace, s.ServingNamespace)
		},
		func(home *store.Store, temporal client.Client, reader *versions.Reader, s settings.Settings) *centre.Activities {
			return centre.NewActivities(home, temporal, reader, s.RecordLimit)
		},
	),
	fx.Invoke(func(lc fx.Lifecycle, home *store.Store, s settings.Settings, log *slog.Logger) {
		setup := store.NewSetup(home, s.InstallCRDs, log)
		lc.Append(fx.Hook{OnStart: setup.Start, OnStop: setup.Stop})
	}),
)

// controllersModule runs the controllers for the servings, Rollouts and TrafficRoutings of the home cluster.
var controllersModule = fx.Module("controllers",
	fx.Invoke(func(lc fx.Lifecycle, objects dynamic.Interface, p apiParts) {
		controller := servingcontroller.New(p.Store, objects, p.Temporal, servingcontroller.Options{
			Presence: presence.Finder{Temporal: p.Temporal, Namespace: p.Settings.TemporalNamespace},
			Servings: p.Settings.ServingNamespace, UnreachableBudget: p.Settings.UnreachableBudget, Log: p.Log,
		})
		lc.Append(fx.Hook{OnStart: controller.Start, OnStop: controller.Stop})
	}),
	fx.Invoke(func(lc fx.Lifecycle, typed kube.Typed, objects dynamic.Interface, p apiParts) {
		options := rolloutcontroller.Options{
			Namespaces: p.Settings.WatchNamespaces,
			Served: func(resource schema.GroupVersionResource) bool {
				return watch.Served(typed.Discovery(), resource)
			},
			OtherController: p.OtherReleaser,
			Log:             p.Log,
		}
		controller := rolloutcontroller.New(p.Store, objects, rollouts.NewObjects(newBackend(p)), options)
		shared := rolloutcontroller.NewTrafficRoutings(p.Store, objects, options)
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

// guardModule installs the guard in the API server. The engine starts even if that fails: preflights report what is not
// guarded.
var guardModule = fx.Module("guard",
	fx.Invoke(func(lc fx.Lifecycle, config *rest.Config, s settings.Settings, log *slog.Logger) {
		if !s.InstallGuard {
			return
		}
		inBackground(lc, func(ctx context.Context) { installGuard(ctx, config, s.Gate != settings.GateOff, log) })
	}),
)

func installGuard(ctx context.Context, config *rest.Config, gate bool, log *slog.Logger) {
	for last := ""; ; {
		message, done, err := guard.Ensure(ctx, config, gate)
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

// rightsModule logs at startup which rights of deploy/rbac the centre's account lacks. Some are only needed by a
// release days later; without others the engine would see less without any error.
var rightsModule = fx.Module("rights",
	fx.Invoke(func(lc fx.Lifecycle, typed kube.Typed, s settings.Settings, log *slog.Logger) error {
		wanted, err := centreRights(s)
		if err != nil {
			return err
		}
		inBackground(lc, func(ctx context.Context) {
			logMissingRights(ctx, kube.NewPermissions(typed), wanted, log)
		})
		return nil
	}),
)

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

// centreRights returns the rights that the centre needs with these settings.
func centreRights(s settings.Settings) ([]manifestRights, error) {
	names := map[string]string{"slipway": s.Namespace, "cross-domain": s.ServingNamespace,
		"slipway-gate-slipway": "slipway-gate-" + s.Namespace}
	centre, err := kube.Rights(rbac.Centre, names)
	if err != nil {
		return nil, err
	}
	if s.WebhookListen == "" {
		delete(centre, "slipway-webhooks")
	}
	if !s.InstallCRDs {
		delete(centre, "slipway-definitions")
	}
	rollouts, err := kube.Rights(rbac.Rollouts, nil, s.WatchNamespaces...)
	if err != nil {
		return nil, err
	}
	all := manifestRights{manifest: "deploy/rbac/centre.yaml"}
	for _, role := range centre {
		all.rights = append(all.rights, role...)
	}
	return []manifestRights{all, {"deploy/rbac/rollouts.yaml", rollouts["slipway-rollouts"],
		v1beta1.GroupVersion.Group}}, nil
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

// webhookModule serves the webhooks for API servers: every webhook.Endpoint in the group "webhooks".
var webhookModule = fx.Module("webhook",
	fx.Provide(fx.Annotate(func(home *store.Store) webhook.Endpoint { return webhook.NewConversion(home) },
		fx.ResultTags(`group:"webhooks"`)), fx.Annotate(gateEndpoint, fx.ResultTags(`group:"webhooks"`))),
	fx.Invoke(func(lc fx.Lifecycle, p webhookParts) error {
		address, err := webhookAddress(p.Settings)
		if err != nil {
			return err
		}
		if p.Settings.WebhookListen == "" {
			inBackground(lc, func(ctx context.Context) { withdrawGate(ctx, p) })
			return nil
		}
		var source webhook.Source = webhook.SelfSigned{Secrets: p.Store, Now: time.Now}
		if cert := p.Settings.WebhookCertFile; cert != "" {
			source = webhook.FromFiles{CertFile: cert, KeyFile: p.Settings.WebhookKeyFile}
		}
		clients, err := webhookClients(p.Settings.WebhookClientCA)
		if err != nil {
			return err
		}
		server := webhook.NewServer(webhook.Options{Listen: p.Settings.WebhookListen, Address: address,
			Source: source, Endpoints: p.Endpoints, ClientCAs: clients, Log: p.Log})
		lc.Append(fx.StartStopHook(server.Start, server.Stop))
		return nil
	}),
)

type webhookParts struct {
	Process
	Store     *store.Store
	Config    *rest.Config
	Endpoints []webhook.Endpoint `group:"webhooks"`
}

// newGate returns the gate of this engine.
func newGate(home *store.Store, config *rest.Config, by string) *guard.Gate {
	return &guard.Gate{Config: config, Name: "slipway-gate-" + home.Namespace(), Mode: by}
}

// withdrawGate removes the webhook that an earlier process registered: the API server would call a server that no
// longer runs.
func withdrawGate(ctx context.Context, p webhookParts) {
	if err := newGate(p.Store, p.Config, settings.GateOff).Withdraw(ctx); err != nil && ctx.Err() == nil {
		p.Log.WarnContext(ctx, "cannot remove the webhook of the gate from the API server", "error", err)
	}
}

// gateEndpoint returns the webhook that holds workloads for Rollouts if admission policies do not.
func gateEndpoint(home *store.Store, config *rest.Config, s settings.Settings) webhook.Endpoint {
	gate := newGate(home, config, s.Gate)
	return webhook.NewGate(webhook.Gate{Engine: gate.IsEngine, Rollouts: home.RolloutsIn, Publish: gate.Publish})
}

// webhookClients returns the current CAs of the clients of the webhooks; nil without a file.
func webhookClients(path string) (func() (*x509.CertPool, error), error) {
	if path == "" {
		return nil, nil
	}
	files, err := reload.New(func() (*x509.CertPool, error) {
		return reload.ReadCA("--webhook-client-ca-file", path)
	}, time.Second, path)
	if err != nil {
		return nil, err
	}
	return files.Get, nil
}

// webhookAddress returns the address of the webhooks for the API server. It rejects incomplete settings.
func webhookAddress(s settings.Settings) (webhook.Address, error) {
	switch {
	case (s.WebhookCertFile == "") != (s.WebhookKeyFile == ""):
		return webhook.Address{}, errors.New("--webhook-cert-file and --webhook-key-file must be set together")
	case s.WebhookListen == "" &&
		(s.WebhookURL != "" || s.WebhookService != "" || s.WebhookCertFile != "" || s.WebhookClientCA != ""):
		return webhook.Address{}, errors.New("the webhooks have an address or a certificate, but are not served: set " +
			"--webhook-listen too")
	case s.WebhookListen == "" && s.Gate == settings.GateWebhook:
		return webhook.Address{}, errors.New("--gate webhook has no effect because the webhooks are not served: set " +
			"--webhook-listen too")
	case s.WebhookURL != "" && s.WebhookService != "":
		return webhook.Address{}, errors.New("--webhook-url and --webhook-service are mutually exclusive: set only " +
			"one of them")
	case s.WebhookURL != "":
		return webhook.Address{URL: s.WebhookURL}, nil
	case s.WebhookService != "":
		return serviceAddress(s.WebhookService)
	}
	address, local := webhook.LocalAddress(s.WebhookListen)
	if !local && s.WebhookListen != "" {
		return address, fmt.Errorf("--webhook-listen %s is not a loopback address, so the API server's address for "+
			"it is unknown: set --webhook-url or --webhook-service", s.WebhookListen)
	}
	return address, nil
}

// serviceAddress parses namespace/name or namespace/name:port.
func serviceAddress(text string) (webhook.Address, error) {
	text, port, ported := strings.Cut(text, ":")
	address := webhook.Address{Port: 443}
	address.Namespace, address.Service, _ = strings.Cut(text, "/")
	if !ported {
		return address, nil
	}
	n, err := strconv.ParseInt(port, 10, 32)
	address.Port = int32(n)
	return address, err
}
