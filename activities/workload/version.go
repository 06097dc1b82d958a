package workload

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/source"
)

// noVersions is the refusal of a worker without Options.Packages.
const noVersions = "this party's worker does not deploy packages and builds"

// withVersion is a copy of a pod template with a version in it, a code package or an image; a template that already has
// the version is copied unchanged. A package that is not fetched yet, whose query is recorded with the future release,
// is set without the query: that is for a dry run.
func (a *Activities) withVersion(ctx context.Context, w catalog.Workload, v operation.Version,
	template map[string]any) (map[string]any, error) {
	copied := (&unstructured.Unstructured{Object: template}).DeepCopy().Object
	if v.PresentIn(copied) {
		return copied, nil
	}
	if a.options.Packages == nil {
		return nil, failure.New(failure.Refused, "%s: %s", w, noVersions)
	}
	if reason := v.UnfitReason(copied); reason != "" {
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

// versionRefusal returns the reason why a version, or the order that would build it, cannot reach pods of a template in
// this namespace.
func (a *Activities) versionRefusal(ctx context.Context, v operation.Version, order *build.Order, namespace string,
	template map[string]any) (source.Refusal, error) {
	if a.options.Packages == nil {
		return source.Refusal{Reason: noVersions}, nil
	}
	if reason := v.UnfitReason(template); reason != "" {
		return source.Refusal{Reason: reason}, nil
	}
	if code, is := v.(source.Package); is {
		refusal, err := a.options.Packages.Refuses(ctx, withSampleURL(code), namespace)
		if refusal.Reason != "" || err != nil {
			if order != nil { // the URL comes from the catalogue
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

// withSampleURL is a package as it will be, with a sample where its commit is not known yet.
func withSampleURL(code source.Package) source.Package {
	code.URL = catalog.FillSample(code.URL)
	return code
}

// packageOf is the SHA-256 of the code package that a pod template runs, "" when it runs none.
func packageOf(template map[string]any) string {
	annotations, _, _ := unstructured.NestedStringMap(template, "metadata", "annotations")
	return source.PackageDigest(annotations)
}

// keepPackages protects the packages of the stable and of the new version in the party's store, before no template
// names the stable one any more.
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
