package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.uber.org/fx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/deploy/rbac"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/kruise/v1beta1"
)

// rightsAgain is how long to wait before a cluster that didn't answer is asked once more.
const rightsAgain = 5 * time.Second

// rightsModule says at the start which rights of deploy/rbac the account of the centre lacks. Some of them matter only when something is released, days later,
// and without some of them the engine silently sees less.
var rightsModule = fx.Module("rights",
	fx.Invoke(func(lc fx.Lifecycle, config *rest.Config, s settings.Settings, log *slog.Logger) error {
		typed, err := kube.NewTyped(config)
		if err != nil {
			return err
		}
		wanted, err := centreRights(s)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(context.Background())
		lc.Append(fx.StartStopHook(func() { go tellRights(ctx, kube.NewPermissions(typed), wanted, log) }, cancel))
		return nil
	}),
)

// rightsOf are the rights that a manifest grants.
type rightsOf struct {
	manifest string
	rights   []kube.Permission
	// of is the group of the kinds that they are about. If nothing of it is granted, none of them is wanted; "": all are.
	of string
}

// wanted says whether somebody has meant the account to have these rights.
func (w rightsOf) wanted(denied []kube.Permission) bool {
	refused := map[kube.Permission]bool{}
	for _, p := range denied {
		refused[p] = true
	}
	return w.of == "" || slices.ContainsFunc(w.rights, func(p kube.Permission) bool { return p.Group == w.of && !refused[p] })
}

// centreRights are the rights that these settings take.
func centreRights(s settings.Settings) ([]rightsOf, error) {
	names := map[string]string{"slipway": s.Namespace, "cross-domain": s.ServingNamespace, "slipway-gate-slipway": "slipway-gate-" + s.Namespace}
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
	all := rightsOf{manifest: "deploy/rbac/centre.yaml"}
	for _, role := range centre {
		all.rights = append(all.rights, role...)
	}
	return []rightsOf{all, {"deploy/rbac/rollouts.yaml", rollouts["slipway-rollouts"], v1beta1.GroupVersion.Group}}, nil
}

func tellRights(ctx context.Context, account *kube.Permissions, wanted []rightsOf, log *slog.Logger) {
	for _, w := range wanted {
		denied, err := account.Denied(ctx, w.rights)
		for err != nil && kube.Classify(err) == kube.Unreachable && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(rightsAgain):
			}
			denied, err = account.Denied(ctx, w.rights)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			log.WarnContext(ctx, "which rights the account has can't be asked", "error", err)
			return
		case len(denied) > 0 && w.wanted(denied):
			log.WarnContext(ctx, "this account lacks rights: apply "+w.manifest+", or grant them otherwise", "lacks", sentenceOf(denied))
		}
	}
}

// sentenceOf names permissions for people.
func sentenceOf(denied []kube.Permission) string {
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
