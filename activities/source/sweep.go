package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/pager"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/source/packages"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/source"
)

// Unnamed lists packages of the party's store that were neither stored nor used for a while (Options.Retention) and
// that no pod template names, neither a workload's current one nor that of a kept revision.
func (a *Activities) Unnamed(ctx context.Context, req source.UnreferencedRequest) (source.Unreferenced, error) {
	if a.options.Store == nil {
		return source.Unreferenced{}, nil
	}
	stored, next, err := a.options.Store.List(ctx, source.MaxUnreferenced, req.After)
	if err != nil {
		return source.Unreferenced{}, unreachable("the package store does not answer: %v", err)
	}
	unnamed := source.Unreferenced{Next: next, KeepSeconds: int64(a.options.Retention / time.Second)}
	before := a.options.Now().Add(-a.options.Retention)
	var referenced sets.Set[string]
	for _, p := range stored {
		if p.UsedAt.After(before) || p.StoredAt.After(before) {
			continue
		}
		if referenced == nil {
			if referenced, err = a.referencedPackages(ctx); err != nil {
				return source.Unreferenced{}, err
			}
		}
		if !referenced.Has(p.SHA256) {
			unnamed.SHA256 = append(unnamed.SHA256, p.SHA256)
		}
	}
	return unnamed, nil
}

// Remove deletes packages from the party's store, except those that were used or referenced after Unnamed listed them.
func (a *Activities) Remove(ctx context.Context, req source.Unreferenced) (source.Removed, error) {
	if a.options.Store == nil || len(req.SHA256) == 0 {
		return source.Removed{}, nil
	}
	referenced, err := a.referencedPackages(ctx)
	if err != nil {
		return source.Removed{}, err
	}
	var removed source.Removed
	before := a.options.Now().Add(-a.options.Retention)
	for _, sha256 := range req.SHA256 {
		if referenced.Has(sha256) {
			continue
		}
		switch err := a.options.Store.Delete(ctx, sha256, before); {
		case err == nil:
			removed.Packages++
			a.options.Logger.InfoContext(ctx, "package removed: no pod template names it", "sha256", sha256)
		case !errors.Is(err, packages.ErrAbsent) && !errors.Is(err, packages.ErrUsed):
			return removed, unreachable("package %s cannot be removed from the package store: %v", sha256, err)
		}
	}
	return removed, nil
}

// Keep protects packages from the sweep for a while. An error of the store is logged only: the release does not depend
// on it.
func (a *Activities) Keep(ctx context.Context, digests ...string) {
	if a.options.Store == nil {
		return
	}
	for _, sha256 := range digests {
		if sha256 == "" {
			continue
		}
		if _, err := a.options.Store.Use(ctx, sha256); err != nil {
			a.options.Logger.WarnContext(ctx, "the package store does not answer", "error", err)
			return
		}
	}
}

func unreachable(format string, args ...any) error {
	return attempt.RetriedError(failure.New(failure.Unreachable, format, args...))
}

// referencedPackages returns the digests that pod templates in the party's namespaces name: those of workloads, and
// those of the revisions that workloads can be rolled back to.
func (a *Activities) referencedPackages(ctx context.Context) (sets.Set[string], error) {
	referenced := sets.New[string]()
	namespaces := a.options.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		apps := a.options.Unbounded.AppsV1()
		for _, list := range []pager.ListPageFunc{listPage(apps.Deployments(namespace).List),
			listPage(apps.StatefulSets(namespace).List), listPage(apps.DaemonSets(namespace).List),
			listPage(apps.ReplicaSets(namespace).List), listPage(apps.ControllerRevisions(namespace).List)} {
			err := pager.New(list).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
				referenced.Insert(source.PackageDigest(templateAnnotations(o)))
				return nil
			})
			if err != nil {
				return nil, unreachable("the packages in use cannot be listed: %s", kube.Text(err))
			}
		}
	}
	return referenced, nil
}

func listPage[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) pager.ListPageFunc {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) }
}

// templateAnnotations are the annotations of an object's pod template.
func templateAnnotations(o runtime.Object) map[string]string {
	switch o := o.(type) {
	case *appsv1.Deployment:
		return o.Spec.Template.Annotations
	case *appsv1.StatefulSet:
		return o.Spec.Template.Annotations
	case *appsv1.DaemonSet:
		return o.Spec.Template.Annotations
	case *appsv1.ReplicaSet:
		return o.Spec.Template.Annotations
	case *appsv1.ControllerRevision:
		var revision struct {
			Spec struct {
				Template metav1.PartialObjectMetadata `json:"template"`
			} `json:"spec"`
		}
		if json.Unmarshal(o.Data.Raw, &revision) != nil {
			return nil
		}
		return revision.Spec.Template.Annotations
	}
	panic(fmt.Sprintf("no list has a %T", o))
}

// defaultRetention is the default of Options.Retention.
const defaultRetention = 24 * time.Hour
