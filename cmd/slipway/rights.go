package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.uber.org/fx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/deploy/rbac"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/pause"
	"slipway.io/slipway/release/kruise/v1beta1"
)

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
		resource := p.Resource
		if p.Subresource != "" {
			resource += "/" + p.Subresource
		}
		part := p.Verb + " " + resource
		if p.Group != "" {
			part += "." + p.Group
		}
		if p.Name != "" {
			part += " " + p.Name
		}
		if p.Namespace == metav1.NamespaceAll {
			part += " in all namespaces"
		} else {
			part += " in namespace " + p.Namespace
		}
		parts = append(parts, part)
	}
	slices.Sort(parts)
	return strings.Join(slices.Compact(parts), ", ")
}
