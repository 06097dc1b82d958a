package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.uber.org/fx"
	"k8s.io/client-go/dynamic"

	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/pause"
	"slipway.io/slipway/release/party"
)

// newProtection returns the reader of what the API server does to edits, which all activities and controllers share.
func newProtection(typed kube.Typed, objects dynamic.Interface) *kube.ProtectionReader {
	return kube.NewProtectionReader(kube.NewCluster(typed, objects, nil))
}

// listing finds out whether the guards of the cluster know the account of this worker.
type listing struct {
	protection *kube.ProtectionReader
	settings   settings.Settings
	log        *slog.Logger
}

func newListing(protection *kube.ProtectionReader, s settings.Settings, log *slog.Logger) *listing {
	return &listing{protection: protection, settings: s, log: log}
}

const (
	// listingPatience is how long a worker that is not listed is given to be: a process that may install the guard
	// lists itself when it starts.
	listingPatience = 5 * time.Second
	// listingTimeout is how long the workers wait for the answer before they take work.
	listingTimeout = 15 * time.Second
)

// Account returns the account as the worker reports it to Temporal.
func (l *listing) Account(ctx context.Context) party.Account {
	ctx, cancel := context.WithTimeout(ctx, listingTimeout)
	defer cancel()
	account, _, err := l.read(ctx)
	if err == nil && account.Guard == party.GuardUnlisted && pause.For(ctx, listingPatience) == nil {
		account, _, err = l.read(ctx)
	}
	if err != nil {
		account.Guard = party.GuardUnknown
	}
	return account
}

// read returns the account and, if it is not listed, the reason.
func (l *listing) read(ctx context.Context) (account party.Account, unlisted string, err error) {
	p, err := l.protection.Read(ctx, time.Second)
	account.User = p.User
	switch {
	case err != nil:
		return account, "", err
	case p.Unknown != "" || p.User == "":
		account.Guard = party.GuardUnknown
	case len(p.Installed) == 0 && len(p.Webhooks) == 0:
		account.Guard = party.GuardNone
	default:
		account.Guard = party.GuardListed
	}
	released := l.settings.WatchNamespaces
	if len(released) == 0 {
		released = []string{""}
	}
	for _, namespace := range released {
		reason, err := l.protection.Unlisted(ctx, namespace, time.Second, time.Second)
		if err != nil {
			return account, "", err
		}
		if reason != "" {
			account.Guard = party.GuardUnlisted
			return account, reason, nil
		}
	}
	return account, "", nil
}

// report logs at the start whether the account is listed, and whether tenants of a released namespace can act as it.
func (l *listing) report(ctx context.Context) {
	account, unlisted, err := l.read(ctx)
	for err != nil && pause.For(ctx, rightsRetryInterval) == nil {
		account, unlisted, err = l.read(ctx)
	}
	if unlisted != "" && pause.For(ctx, listingPatience) == nil {
		account, unlisted, err = l.read(ctx)
	}
	switch {
	case err != nil:
		return
	case unlisted != "":
		l.log.ErrorContext(ctx, "the guard does not know the account of this worker: its releases are refused",
			"account", account.User, "problem", unlisted)
	case account.Guard == party.GuardUnknown:
		l.log.InfoContext(ctx, "it is unknown whether guards know the account of this worker: it may not list "+
			"admission policies (deploy/rbac/guard-reader.yaml)", "account", account.User)
	}
	if namespace := accountNamespace(account.User); slices.Contains(l.settings.WatchNamespaces, namespace) {
		l.log.WarnContext(ctx, "the account of this worker is in a namespace that it releases in: those who administer "+
			"that namespace can act as the worker. Give the worker an account in a namespace of its own "+
			"(deploy/rbac/party.yaml)", "account", account.User, "namespace", namespace)
	}
}

// accountNamespace returns the namespace of a service account, "" for another user.
func accountNamespace(user string) string {
	name, is := strings.CutPrefix(user, "system:serviceaccount:")
	if !is {
		return ""
	}
	namespace, _, _ := strings.Cut(name, ":")
	return namespace
}

// reportListing reports at the start whether the guard knows the account of the worker.
func reportListing(lc fx.Lifecycle, l *listing) { inBackground(lc, l.report) }
