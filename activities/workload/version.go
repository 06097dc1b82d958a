package workload

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workloadops"
)

// noVersions is the refusal of a worker that was not given Options.Packages.
const noVersions = "this party's worker does not deploy packages and builds"

// deployed is a copy of a pod template with a version in it, a code package or an image; a template in which the very version stands already is left as it
// is. A package that was not fetched yet, whose query is recorded with the release that is yet to begin, goes in without the query: that is for a dry run.
func (a *Activities) deployed(ctx context.Context, w catalog.Workload, v workloadops.Version, template map[string]any) (map[string]any, error) {
	copied := (&unstructured.Unstructured{Object: template}).DeepCopy().Object
	if v.StandsIn(copied) {
		return copied, nil
	}
	if a.options.Packages == nil {
		return nil, failure.New(failure.Refused, "%s: %s", w, noVersions)
	}
	if reason := v.Unfit(copied); reason != "" {
		return nil, failure.New(failure.Refused, "%s: %s", w, reason)
	}
	switch v := v.(type) {
	case source.Image:
		v.Put(copied)
	case source.Package:
		url := v.URL
		if v.SHA256 != "" {
			var err error
			if url, err = a.options.Packages.URL(ctx, v); err != nil {
				return nil, err
			}
		}
		v.Put(copied, a.options.Packages.Fetcher(), url)
	}
	return copied, nil
}

// refusesVersion says why a version, which the order would build where there is one, cannot reach pods of a template in this namespace.
func (a *Activities) refusesVersion(ctx context.Context, v workloadops.Version, order *build.Order, namespace string, template map[string]any) (source.Refusal, error) {
	if a.options.Packages == nil {
		return source.Refusal{Reason: noVersions}, nil
	}
	if reason := v.Unfit(template); reason != "" {
		return source.Refusal{Reason: reason}, nil
	}
	if code, is := v.(source.Package); is {
		refusal, err := a.options.Packages.Refuses(ctx, expected(code), namespace)
		if refusal.Reason != "" || err != nil {
			if order != nil { // the URL is the catalogue's
				refusal.Key = ""
			}
			return refusal, err
		}
	}
	if order == nil {
		return source.Refusal{}, nil
	}
	return a.options.Packages.RefusesBuild(ctx, *order, namespace)
}

// expected is a package as it will be, where the commit that it is built of is not known yet.
func expected(code source.Package) source.Package {
	code.URL = catalog.FillSample(code.URL)
	return code
}

// packageOf is the SHA-256 of the code package that a pod template runs, "" when it runs none.
func packageOf(template map[string]any) string {
	annotations, _, _ := unstructured.NestedStringMap(template, "metadata", "annotations")
	return source.Packaged(annotations)
}

// keepPackages keeps the packages of the stable and of the new version in the party's store, before no template names the stable one any more.
func (t *rolloutJob) keepPackages(ctx context.Context, l *snapshot, template map[string]any) {
	before := packageOf(templateOf(l.object))
	if l.seen.Saved != nil {
		before = packageOf(l.templates[l.seen.Saved.Stable])
	}
	now := packageOf(template)
	if t.a.options.Packages != nil && before+now != "" {
		t.a.options.Packages.Keep(ctx, before, now)
	}
}
