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
	"k8s.io/client-go/tools/pager"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/source/packages"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/source"
)

// Unnamed lists packages of the party's store that nobody has used for a while (Options.Keep) and that no pod template, of now or of a revision
// that is kept, names.
func (a *Activities) Unnamed(ctx context.Context, req source.UnnamedRequest) (source.Unnamed, error) {
	if a.options.Store == nil {
		return source.Unnamed{}, nil
	}
	kept, next, err := a.options.Store.List(ctx, source.MaxUnnamed, req.After)
	if err != nil {
		return source.Unnamed{}, unreachable("the package store does not answer: %v", err)
	}
	unnamed := source.Unnamed{Next: next, KeepSeconds: int64(a.options.Keep / time.Second)}
	before := a.options.Now().Add(-a.options.Keep)
	var named map[string]bool
	for _, p := range kept {
		if p.UsedAt.After(before) || p.StoredAt.After(before) {
			continue
		}
		if named == nil {
			if named, err = a.named(ctx); err != nil {
				return source.Unnamed{}, err
			}
		}
		if !named[p.SHA256] {
			unnamed.SHA256 = append(unnamed.SHA256, p.SHA256)
		}
	}
	return unnamed, nil
}

// Remove takes packages out of the party's store. One that something names by now, or that was used meanwhile, stays.
func (a *Activities) Remove(ctx context.Context, req source.Unnamed) (source.Removed, error) {
	if a.options.Store == nil || len(req.SHA256) == 0 {
		return source.Removed{}, nil
	}
	named, err := a.named(ctx)
	if err != nil {
		return source.Removed{}, err
	}
	var removed source.Removed
	before := a.options.Now().Add(-a.options.Keep)
	for _, sha256 := range req.SHA256 {
		if named[sha256] {
			continue
		}
		switch err := a.options.Store.Delete(ctx, sha256, before); {
		case err == nil:
			removed.Packages++
			a.options.Logger.InfoContext(ctx, "package removed: nothing names it any more", "sha256", sha256)
		case !errors.Is(err, packages.ErrAbsent) && !errors.Is(err, packages.ErrUsed):
			return removed, unreachable("the package store does not remove %s: %v", sha256, err)
		}
	}
	return removed, nil
}

// Keep keeps packages from being swept for a while. A store that does not answer is told of by whoever needs it.
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

// named are the packages that pod templates in the party's namespaces name: those of workloads, and those of the revisions that workloads can
// be taken back to.
func (a *Activities) named(ctx context.Context) (map[string]bool, error) {
	named := map[string]bool{}
	note := func(annotations map[string]string) {
		if sha256 := source.Packaged(annotations); sha256 != "" {
			named[sha256] = true
		}
	}
	namespaces := a.options.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		for _, list := range a.lists(namespace) {
			err := pager.New(list).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
				note(templateAnnotations(o))
				return nil
			})
			if err != nil {
				return nil, unreachable("which packages are in use cannot be seen: %s", kube.Text(err))
			}
		}
	}
	return named, nil
}

// lists are what has pod templates, of now or of before.
func (a *Activities) lists(namespace string) []pager.ListPageFunc {
	apps := a.client.AppsV1()
	return []pager.ListPageFunc{
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return apps.Deployments(namespace).List(ctx, o)
		},
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return apps.StatefulSets(namespace).List(ctx, o)
		},
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return apps.DaemonSets(namespace).List(ctx, o)
		},
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return apps.ReplicaSets(namespace).List(ctx, o)
		},
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return apps.ControllerRevisions(namespace).List(ctx, o)
		},
	}
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
				Template struct {
					Metadata struct {
						Annotations map[string]string `json:"annotations"`
					} `json:"metadata"`
				} `json:"template"`
			} `json:"spec"`
		}
		if json.Unmarshal(o.Data.Raw, &revision) != nil {
			return nil
		}
		return revision.Spec.Template.Metadata.Annotations
	}
	panic(fmt.Sprintf("no list has a %T", o))
}

// defaultKeep is how long a package that nothing names stays in a store.
const defaultKeep = 24 * time.Hour
