package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"go.uber.org/fx"
	admission "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/api/webhook"
	"slipway.io/slipway/cli/guard"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/kube"
	own "slipway.io/slipway/kube/account"
	gates "slipway.io/slipway/release/guard"
	"slipway.io/slipway/reload"
	"slipway.io/slipway/store"
)

// webhookModule serves the webhooks for API servers: every webhook.Endpoint in the group "webhooks".
var webhookModule = fx.Module("webhook",
	fx.Provide(fx.Annotate(conversionEndpoint, fx.ResultTags(`group:"webhooks"`)),
		fx.Annotate(gateEndpoint, fx.ResultTags(`group:"webhooks"`)),
		fx.Annotate(authorsEndpoint, fx.ResultTags(`group:"webhooks"`))),
	fx.Invoke(func(lc fx.Lifecycle, p webhookParts) error {
		address, err := webhookAddress(p.Settings)
		if err != nil {
			return err
		}
		if p.Settings.WebhookListen == "" {
			if p.Settings.RegisterWebhooks {
				inBackground(lc, func(ctx context.Context) { withdrawGate(ctx, p) })
			}
			return nil
		}
		source, err := webhookSource(p)
		if err != nil {
			return err
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

// webhookSource returns where the certificate of the webhooks comes from. Only a server that registers its webhooks can
// make one by itself: it also publishes the CA.
func webhookSource(p webhookParts) (webhook.Source, error) {
	switch cert := p.Settings.WebhookCertFile; {
	case cert != "":
		return webhook.FromFiles{CertFile: cert, KeyFile: p.Settings.WebhookKeyFile}, nil
	case p.Settings.RegisterWebhooks:
		return webhook.SelfSigned{Secrets: p.Store, Now: time.Now}, nil
	}
	return nil, errors.New("the webhooks have no certificate: set --webhook-cert-file and --webhook-key-file, with a " +
		"certificate of the CA with which an administrator has registered them (slipway guard install " +
		"--webhook-ca-file), or let this server make and register it: --register-webhooks")
}

// newGate returns the gate of this engine.
func newGate(home *store.Store, config *rest.Config, by string) *guard.Gate {
	return &guard.Gate{Config: config, Name: gates.GateOf(home.Namespace()), Mode: by}
}

// newAuthors returns the check of authors of this engine.
func newAuthors(home *store.Store, config *rest.Config, by string) *guard.Gate {
	return &guard.Gate{Config: config, Name: gates.AuthorsOf(home.Namespace()), Mode: by, Authors: true}
}

// withdrawGate removes the webhooks that an earlier process registered: the API server would call a server that no
// longer runs.
func withdrawGate(ctx context.Context, p webhookParts) {
	for _, gate := range []*guard.Gate{newGate(p.Store, p.Config, settings.GateOff),
		newAuthors(p.Store, p.Config, settings.GateOff)} {
		if err := gate.Withdraw(ctx); err != nil && ctx.Err() == nil {
			p.Log.WarnContext(ctx, "cannot remove a webhook from the API server", "webhook", gate.Name, "error", err)
		}
	}
}

// gateParts are the dependencies of the gate's webhook.
type gateParts struct {
	Process
	Store     *store.Store
	Config    *rest.Config
	Account   *own.Own
	Role      role
	Installed *installed
}

// publishing returns how the webhook of a gate is registered, or checked if an administrator registers it.
func (p gateParts) publishing(gate *guard.Gate, part string) func(context.Context,
	admission.WebhookClientConfig) (time.Duration, error) {
	gate.Log = p.Log
	gate.List = func(ctx context.Context) (guard.List, error) {
		return guardList(ctx, p.Account, p.Settings, p.Role)
	}
	if !p.Settings.RegisterWebhooks {
		return p.Installed.checking(part, gate.Check)
	}
	return gate.Publish
}

// gateEndpoint returns the webhook that holds workloads for Rollouts if admission policies do not.
func gateEndpoint(p gateParts) webhook.Endpoint {
	gate := newGate(p.Store, p.Config, p.Settings.Gate)
	return webhook.NewGate(webhook.Gate{Engine: gate.IsEngine, Rollouts: p.Store.RolloutsIn,
		Publish: p.publishing(gate, "the gate's webhook")})
}

// authorsEndpoint returns the webhook that checks authors of Rollouts if no admission policy does.
func authorsEndpoint(p gateParts, typed kube.Typed, objects dynamic.Interface) webhook.Endpoint {
	gate := newAuthors(p.Store, p.Config, p.Settings.Gate)
	return webhook.NewAuthors(webhook.Authors{Engine: gate.IsEngine, May: kube.NewCluster(typed, objects, nil).May,
		Publish: p.publishing(gate, "the webhook that checks authors")})
}

// conversionEndpoint returns the webhook that converts Rollouts.
func conversionEndpoint(home *store.Store, s settings.Settings, found *installed) webhook.Endpoint {
	endpoint := webhook.NewConversion(home)
	if !s.RegisterWebhooks {
		endpoint.Publish = found.checking("conversion", home.CheckConversion)
	}
	return endpoint
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
		service, err := settings.ParseService(s.WebhookService)
		return webhook.Address{Namespace: service.Namespace, Service: service.Name, Port: service.Port}, err
	}
	address, local := webhook.LocalAddress(s.WebhookListen)
	if !local && s.WebhookListen != "" {
		return address, fmt.Errorf("--webhook-listen %s is not a loopback address, so the API server's address for "+
			"it is unknown: set --webhook-url or --webhook-service", s.WebhookListen)
	}
	return address, nil
}
