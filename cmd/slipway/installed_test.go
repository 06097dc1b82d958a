package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admission "k8s.io/api/admissionregistration/v1"

	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/store"
)

// What a server finds is logged when it changes, and kept for /readyz. An unreachable cluster changes nothing.
func TestInstalled_LogsChanges(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	found := newInstalled(slog.New(slog.NewTextHandler(&log, nil)))
	answer, wrong := "", error(nil)
	check := found.checking("conversion", func(context.Context, admission.WebhookClientConfig) (string, error) {
		return answer, wrong
	})
	run := func() error {
		_, err := check(t.Context(), admission.WebhookClientConfig{})
		return err
	}
	require.NoError(t, run())
	require.NoError(t, found.Err())
	require.Empty(t, log.String())
	answer = "the definition has another CA"
	require.NoError(t, run())
	require.NoError(t, run())
	found.set(t.Context(), "policies", "the gate is not installed")
	require.EqualError(t, found.Err(), "the definition has another CA\nthe gate is not installed")
	require.Equal(t, 1, strings.Count(log.String(), answer), "once for each change")
	answer, wrong = "", errors.New("connection refused")
	require.Error(t, run())
	require.ErrorContains(t, found.Err(), "another CA", "the last answer counts")
	wrong = nil
	require.NoError(t, run())
	found.set(t.Context(), "policies", "")
	require.NoError(t, found.Err())
	require.Contains(t, log.String(), "complete again")
}

// A server that doesn't register its webhooks can't publish a CA of its own.
func TestWebhookSource_NeedsCertificate_UnlessItRegisters(t *testing.T) {
	t.Parallel()
	home := &store.Store{}
	of := func(s settings.Settings) error {
		_, err := webhookSource(webhookParts{Process: Process{Settings: s}, Store: home})
		return err
	}
	require.ErrorContains(t, of(settings.Settings{}), "--register-webhooks")
	require.NoError(t, of(settings.Settings{RegisterWebhooks: true}))
	require.NoError(t, of(settings.Settings{WebhookCertFile: "tls.crt", WebhookKeyFile: "tls.key"}))
}
