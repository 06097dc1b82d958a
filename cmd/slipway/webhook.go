package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"go.uber.org/fx"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/api/webhook"
	"slipway.io/slipway/cli/guard"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/store"
)

// webhookModule serves what API servers call: every webhook.Endpoint that is provided in the group "webhooks".
var webhookModule = fx.Module("webhook",
	fx.Provide(fx.Annotate(func(home *store.Store) webhook.Endpoint { return webhook.NewConversion(home) },
		fx.ResultTags(`group:"webhooks"`)), fx.Annotate(gateEndpoint, fx.ResultTags(`group:"webhooks"`))),
	fx.Invoke(func(lc fx.Lifecycle, p webhookParts) error {
		address, err := webhookAddress(p.Settings)
		if err != nil {
			return err
		}
		if p.Settings.WebhookListen == "" {
			ctx, cancel := context.WithCancel(context.Background())
			lc.Append(fx.StartStopHook(func() { go withdrawGate(ctx, p) }, cancel))
			return nil
		}
		server := webhook.NewServer(webhook.Options{Listen: p.Settings.WebhookListen, Address: address,
			Source: webhookSource(p.Settings, p.Store), Endpoints: p.Endpoints, Log: p.Log})
		lc.Append(fx.StartStopHook(server.Start, server.Stop))
		return nil
	}),
)

type webhookParts struct {
	fx.In

	Settings  settings.Settings
	Store     *store.Store
	Config    *rest.Config
	Endpoints []webhook.Endpoint `group:"webhooks"`
	Log       *slog.Logger
}

// newGate is the gate of this engine.
func newGate(home *store.Store, config *rest.Config, by string) *guard.Gate {
	return &guard.Gate{Config: config, Name: "slipway-gate-" + home.Namespace(), By: by}
}

// withdrawGate takes away what an earlier process has told the API server of: it would ask a server that isn't there about edits.
func withdrawGate(ctx context.Context, p webhookParts) {
	if err := newGate(p.Store, p.Config, settings.GateOff).Withdraw(ctx); err != nil && ctx.Err() == nil {
		p.Log.WarnContext(ctx, "the webhook of the gate may still be known to the API server", "error", err)
	}
}

// gateEndpoint holds what Rollouts name, where policies don't.
func gateEndpoint(home *store.Store, config *rest.Config, s settings.Settings) webhook.Endpoint {
	gate := newGate(home, config, s.Gate)
	return webhook.NewGate(webhook.Gate{Engine: gate.Engine, Rollouts: home.RolloutsIn, Publish: gate.Publish})
}

func webhookSource(s settings.Settings, home *store.Store) webhook.Source {
	if s.WebhookCertFile != "" {
		return webhook.Given{CertFile: s.WebhookCertFile, KeyFile: s.WebhookKeyFile}
	}
	return webhook.Own{Secrets: home, Now: time.Now}
}

// webhookAddress is how the API server reaches the webhooks. It refuses settings that are of no use without others.
func webhookAddress(s settings.Settings) (webhook.Address, error) {
	switch {
	case (s.WebhookCertFile == "") != (s.WebhookKeyFile == ""):
		return webhook.Address{}, errors.New("--webhook-cert-file and --webhook-key-file belong together: give both, or neither")
	case s.WebhookListen == "" && (s.WebhookURL != "" || s.WebhookService != "" || s.WebhookCertFile != ""):
		return webhook.Address{}, errors.New("the webhooks have an address or a certificate, but aren't served: give --webhook-listen too")
	case s.WebhookListen == "" && s.Gate == settings.GateWebhook:
		return webhook.Address{}, errors.New("--gate webhook holds nothing while the webhooks aren't served: give --webhook-listen too")
	case s.WebhookURL != "" && s.WebhookService != "":
		return webhook.Address{}, errors.New("--webhook-url and --webhook-service both say how the webhooks are reached: keep one")
	case s.WebhookURL != "":
		return webhook.Address{URL: s.WebhookURL}, nil
	case s.WebhookService != "":
		return serviceAddress(s.WebhookService)
	}
	address, local := webhook.AddressOf(s.WebhookListen)
	if !local && s.WebhookListen != "" {
		return address, fmt.Errorf("--webhook-listen %s does not say how the API server reaches it: give --webhook-url or --webhook-service",
			s.WebhookListen)
	}
	return address, nil
}

// serviceAddress reads namespace/name or namespace/name:port.
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
