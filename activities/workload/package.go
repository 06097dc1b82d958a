package workload

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/source"
)

// noPackages is the refusal of a worker that was not given Options.Packages.
const noPackages = "this party's worker does not deploy packages"

// packaged is a copy of a pod template with a code package in it; a template in which the very package stands already is left as it is. A package that
// was not fetched yet, whose query is recorded with the release that is yet to begin, goes in without the query: that is for a dry run.
func (a *Activities) packaged(ctx context.Context, w catalog.Workload, p source.Package, template map[string]any) (map[string]any, error) {
	copied := (&unstructured.Unstructured{Object: template}).DeepCopy().Object
	if p.SHA256 != "" && p.StandsIn(copied) {
		return copied, nil
	}
	if a.options.Packages == nil {
		return nil, failure.New(failure.Refused, "%s: %s", w, noPackages)
	}
	if reason := p.Unfit(copied); reason != "" {
		return nil, failure.New(failure.Refused, "%s: %s", w, reason)
	}
	url := p.URL
	if p.SHA256 != "" {
		var err error
		if url, err = a.options.Packages.URL(ctx, p); err != nil {
			return nil, err
		}
	}
	p.Put(copied, a.options.Packages.Fetcher(), url)
	return copied, nil
}

// refusesPackage says why a package cannot reach pods of a template in this namespace, "" when nothing is known to be in its way.
func (a *Activities) refusesPackage(ctx context.Context, p source.Package, namespace string, template map[string]any) (string, error) {
	if a.options.Packages == nil {
		return noPackages, nil
	}
	if reason := p.Unfit(template); reason != "" {
		return reason, nil
	}
	return a.options.Packages.Refuses(ctx, p, namespace)
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
