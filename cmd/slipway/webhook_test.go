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
		"Off": {"webhooks are disabled", settings.Settings{}, webhook.Address{}, ""},
		"Local": {"a local API server can connect", settings.Settings{WebhookListen: "127.0.0.1:9443"},
			webhook.Address{URL: "https://127.0.0.1:9443"}, ""},
		"URL": {"the configured URL is used",
			settings.Settings{WebhookListen: ":9443", WebhookURL: "https://a.example"},
			webhook.Address{URL: "https://a.example"}, ""},
		"Service": {"the default port", settings.Settings{WebhookListen: ":9443",
			WebhookService: "slipway/webhooks"}, webhook.Address{Namespace: "slipway", Service: "webhooks", Port: 443},
			""},
		"ServicePort": {"another port", settings.Settings{WebhookListen: ":9443",
			WebhookService: "slipway/webhooks:8443"},
			webhook.Address{Namespace: "slipway", Service: "webhooks", Port: 8443}, ""},
		"Unknown": {"the address for the API server is unknown", settings.Settings{WebhookListen: ":9443"},
			webhook.Address{}, "set --webhook-url or --webhook-service"},
		"Both": {"both cannot be set", settings.Settings{WebhookListen: ":9443", WebhookURL: "https://a.example",
			WebhookService: "a/b"}, webhook.Address{}, "mutually exclusive"},
		"Useless": {"the webhooks are not served", settings.Settings{WebhookURL: "https://a.example"},
			webhook.Address{}, "set --webhook-listen too"},
		"Gate": {"the gate's webhook is not served", settings.Settings{Gate: settings.GateWebhook},
			webhook.Address{}, "set --webhook-listen too"},
		"UselessCA": {"the webhooks are not served", settings.Settings{WebhookClientCA: "a"}, webhook.Address{},
			"set --webhook-listen too"},
		"NoKey": {"half a certificate", settings.Settings{WebhookListen: "127.0.0.1:9443", WebhookCertFile: "a"},
			webhook.Address{}, "must be set together"},
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
