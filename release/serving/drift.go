package serving

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"slipway.io/slipway/release/backoff"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/workload"
)

// FieldManager is the field manager under which Slipway applies, and therefore owns, fields of a serving's objects.
const FieldManager = "slipway-serving"

// AppliedDigest returns the digest of the fields that Slipway owns, without those of a running operation and the size,
// which an autoscaler may set. It does not modify fields, which consist of maps, lists and scalars as decoded from
// JSON.
func AppliedDigest(fields map[string]any) (string, error) {
	tree := without(fields, "status")
	if meta := without(tree["metadata"], "uid", "resourceVersion", "creationTimestamp", "managedFields"); meta != nil {
		meta["annotations"] = without(meta["annotations"], workload.AnnotationClaimedBy, AnnotationApplied)
		meta["labels"] = without(meta["labels"], workload.LabelClaimed)
		tree["metadata"] = meta
	}
	if spec := without(tree["spec"], "replicas", "paused"); spec != nil {
		tree["spec"] = spec
	}
	raw, err := json.Marshal(canonical(tree))
	if err != nil {
		return "", err
	}
	return shortDigest(raw), nil
}

// without returns a copy of a map without some keys; nil if in is not a map.
func without(in any, keys ...string) map[string]any {
	fields, is := in.(map[string]any)
	if !is {
		return nil
	}
	rest := maps.Clone(fields)
	for _, key := range keys {
		delete(rest, key)
	}
	return rest
}

// canonical removes empty values and sorts lists of objects, since the API server may store them in another order.
func canonical(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, field := range v {
			if c := canonical(field); c != nil {
				out[key] = c
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case []any:
		return canonicalList(v)
	}
	return value
}

func canonicalList(list []any) any {
	if len(list) == 0 {
		return nil
	}
	type item struct {
		value any
		raw   []byte
	}
	items, objects := make([]item, len(list)), true
	for i, one := range list {
		_, is := one.(map[string]any)
		objects = objects && is
		items[i].value = canonical(one)
	}
	if objects && len(items) > 1 {
		for i := range items {
			items[i].raw, _ = json.Marshal(items[i].value) // cannot fail: the value was decoded from JSON
		}
		slices.SortStableFunc(items, func(a, b item) int { return bytes.Compare(a.raw, b.raw) })
	}
	out := make([]any, len(items))
	for i := range items {
		out[i] = items[i].value
	}
	return out
}

// KeepSize keeps a size that another client has set, for example an autoscaler, unless the serving itself requests
// another size than before.
func KeepSize(wanted, is *appsv1.Deployment) {
	same := is.Annotations[AnnotationReplicas] == wanted.Annotations[AnnotationReplicas]
	if same && !ownedFields(ourEntry(is)).Has(fieldpath.MakePathOrDie("spec", "replicas")) {
		wanted.Spec.Replicas = nil
	}
}

// OwnedFields returns the fields of an object that Slipway applied, as the API server records them (fieldsV1); nil if
// it applied none.
func OwnedFields(object metav1.Object) []byte {
	if fields := ourEntry(object).FieldsV1; fields != nil {
		return fields.GetRawBytes()
	}
	return nil
}

// ourEntry returns the entry of what Slipway applied; an empty one if it applied nothing.
func ourEntry(object metav1.Object) metav1.ManagedFieldsEntry {
	if i := slices.IndexFunc(object.GetManagedFields(), isOurs); i >= 0 {
		return object.GetManagedFields()[i]
	}
	return metav1.ManagedFieldsEntry{}
}

func isOurs(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply &&
		entry.Subresource == ""
}

func ownedFields(entry metav1.ManagedFieldsEntry) *fieldpath.Set {
	set := fieldpath.NewSet()
	if entry.FieldsV1 == nil || set.FromJSON(entry.FieldsV1.GetRawReader()) != nil {
		return fieldpath.NewSet()
	}
	return set
}

const maxDriftFields = 3

// DriftOf returns which field managers have changed which fields of an object. A removed field has no owner, so its
// change has no manager.
func DriftOf(kind string, object metav1.Object) []kuscia.Drift {
	ours, since := ownedFields(ourEntry(object)), ourEntry(object).Time
	name := kind + "/" + object.GetName()
	var all []kuscia.Drift
	for _, entry := range object.GetManagedFields() {
		if isOurs(entry) || entry.Subresource != "" || entry.Time.Before(since) {
			continue
		}
		if fields := changedFields(ownedFields(entry).Difference(ours).Leaves()); len(fields) > 0 {
			fields = fields[:min(len(fields), maxDriftFields)]
			all = append(all, kuscia.Drift{Object: name, Manager: entry.Manager, Fields: fields, At: entry.Time})
		}
	}
	if len(all) == 0 {
		return []kuscia.Drift{{Object: name}}
	}
	slices.SortFunc(all, func(a, b kuscia.Drift) int { return cmp.Compare(a.Manager, b.Manager) })
	return all
}

// changedFields returns the fields that may have been Slipway's: labels and annotations of other domains never were.
func changedFields(set *fieldpath.Set) (fields []string) {
	set.Iterate(func(path fieldpath.Path) {
		text := strings.TrimPrefix(path.String(), ".")
		if text == "spec.replicas" || text == "spec.paused" {
			return // every client may change them
		}
		foreign := strings.Contains(text, "metadata.annotations") || strings.Contains(text, "metadata.labels")
		if foreign && !strings.Contains(text, "slipway.io/") && !strings.Contains(text, "kuscia.secretflow/") {
			return
		}
		fields = append(fields, text)
	})
	slices.Sort(fields)
	return fields
}

// ReasonObjectsDrifted: another client has changed objects of a party.
const ReasonObjectsDrifted = "ObjectsDrifted"

// After restoreAtOnce restorations against one field manager, the pause before the next one starts at restoreShortest
// and doubles up to restoreLongest. The count is reset after restoreForget without a change.
const (
	restoreAtOnce   = 3
	restoreShortest = 5 * time.Minute
	restoreLongest  = time.Hour
	restoreForget   = 2 * time.Hour
	// maxRestorations is the maximum number of field managers remembered for each party.
	maxRestorations = 5
)

// managerOf returns the field manager of a change; "somebody", which is stored in the status, if the API server has
// none.
func managerOf(d kuscia.Drift) string { return cmp.Or(d.Manager, "somebody") }

func describe(d kuscia.Drift) string {
	text := fmt.Sprintf("%s has changed %s", cmp.Or(d.Manager, "another client"), d.Object)
	if len(d.Fields) > 0 {
		text += " (" + strings.Join(d.Fields, ", ") + ")"
	}
	if d.At != nil {
		text += " at " + phrase.Time(d.At.Time)
	}
	return text
}

// RecordRestoration counts, for each field manager, that an operation begins to revert its changes.
func RecordRestoration(kd *kuscia.KusciaDeployment, at time.Time) {
	for _, p := range Members(kd) {
		if entry := statusOf(kd, p); len(entry.Drift) > 0 {
			entry.Restorations = countRestorations(entry.Restorations, entry.Drift, at)
			setStatus(kd, p, entry)
		}
	}
}

func countRestorations(known []kuscia.Restoration, drift []kuscia.Drift, at time.Time) []kuscia.Restoration {
	counts := map[string]kuscia.Restoration{}
	for _, r := range known {
		if at.Sub(r.LastAt.Time) < restoreForget {
			counts[r.Manager] = r
		}
	}
	now, counted := metav1.NewTime(at.Truncate(time.Second)), map[string]bool{}
	for _, d := range drift {
		if manager := managerOf(d); !counted[manager] {
			counted[manager] = true
			counts[manager] = kuscia.Restoration{Manager: manager, Count: counts[manager].Count + 1, LastAt: now}
		}
	}
	all := slices.SortedFunc(maps.Values(counts), func(a, b kuscia.Restoration) int {
		return cmp.Or(b.LastAt.Compare(a.LastAt.Time), cmp.Compare(a.Manager, b.Manager))
	})
	return all[:min(len(all), maxRestorations)]
}

// restoreNotBefore returns the earliest time at which a party's drift is reverted, the zero time for at once; against
// is the manager that causes the delay.
func restoreNotBefore(e kuscia.PartyDeploymentStatus) (at time.Time, against kuscia.Restoration) {
	for _, d := range e.Drift {
		for _, r := range e.Restorations {
			if r.Manager != managerOf(d) || r.Count < restoreAtOnce {
				continue
			}
			pause := backoff.After(int(r.Count)-restoreAtOnce, restoreShortest, restoreLongest)
			if next := r.LastAt.Add(pause); next.After(at) {
				at, against = next, r
			}
		}
	}
	return at, against
}

// driftMessage describes the drift of a party, and when it is reverted.
func driftMessage(e kuscia.PartyDeploymentStatus) string {
	text := describe(e.Drift[0])
	if more := len(e.Drift) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	if at, against := restoreNotBefore(e); !at.IsZero() {
		text += fmt.Sprintf("; already restored %d times, next at %s: stop %s, or change the serving instead",
			against.Count, phrase.Time(at), against.Manager)
	}
	return text
}

// drifted describes the drift of a serving, "" if there is none, and returns the earliest time at which it is reverted.
func drifted(kd *kuscia.KusciaDeployment) (why string, notBefore time.Time) {
	for _, p := range Members(kd) {
		entry := statusOf(kd, p)
		at, _ := restoreNotBefore(entry)
		if len(entry.Drift) > 0 && (why == "" || at.Before(notBefore)) {
			why, notBefore = fmt.Sprintf("party %s: %s", p.Name(), describe(entry.Drift[0])), at
		}
	}
	return why, notBefore
}
