package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/webhook"
	"slipway.io/slipway/cli/settings"
)

func TestWebhookAddress(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason string
		s      settings.Settings
		want   webhook.Address
		says   string
	}{
		"Off":         {"nothing is served", settings.Settings{}, webhook.Address{}, ""},
		"Local":       {"an API server on this machine reaches it", settings.Settings{WebhookListen: "127.0.0.1:9443"}, webhook.Address{URL: "https://127.0.0.1:9443"}, ""},
		"URL":         {"as it is said", settings.Settings{WebhookListen: ":9443", WebhookURL: "https://a.example"}, webhook.Address{URL: "https://a.example"}, ""},
		"Service":     {"the port of HTTPS", settings.Settings{WebhookListen: ":9443", WebhookService: "slipway/webhooks"}, webhook.Address{Namespace: "slipway", Service: "webhooks", Port: 443}, ""},
		"ServicePort": {"another port", settings.Settings{WebhookListen: ":9443", WebhookService: "slipway/webhooks:8443"}, webhook.Address{Namespace: "slipway", Service: "webhooks", Port: 8443}, ""},
		"Unknown":     {"how is it reached?", settings.Settings{WebhookListen: ":9443"}, webhook.Address{}, "give --webhook-url or --webhook-service"},
		"Both":        {"which of both", settings.Settings{WebhookListen: ":9443", WebhookURL: "https://a.example", WebhookService: "a/b"}, webhook.Address{}, "keep one"},
		"Useless":     {"nobody serves it", settings.Settings{WebhookURL: "https://a.example"}, webhook.Address{}, "give --webhook-listen too"},
		"Gate":        {"a gate that nobody serves", settings.Settings{Gate: settings.GateWebhook}, webhook.Address{}, "give --webhook-listen too"},
		"NoKey":       {"half a certificate", settings.Settings{WebhookListen: "127.0.0.1:9443", WebhookCertFile: "a"}, webhook.Address{}, "belong together"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := webhookAddress(test.s)
			if test.says != "" {
				require.ErrorContains(t, err, test.says, test.reason)
				return
			}
			require.NoError(t, err, test.reason)
			require.Equal(t, test.want, got, test.reason)
		})
	}
}
