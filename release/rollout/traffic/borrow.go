package traffic

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/digest"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/fieldmanager"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// maxSaved bounds what is saved on an object, in bytes. The API server accepts 256 KiB of annotations, which include
// the user's own.
const maxSaved = 100 << 10

// annotationApplied is kubectl's own copy of what was applied. Scripts do not see it and the engine does not change it.
const annotationApplied = "kubectl.kubernetes.io/last-applied-configuration"

// marks are the places of the annotations, and of the label by which a watch finds the object, that an object has while
// it is borrowed.
var marks = []string{
	jsonpatch.Annotation(rollout.AnnotationHeldBy), jsonpatch.Annotation(rollout.AnnotationRestore),
	jsonpatch.Annotation(rollout.AnnotationWritten), markClaimed,
}

var markClaimed = jsonpatch.Label(workload.LabelClaimed)

// markOriginal is the place of the annotation that describes a borrowed custom object's original to other tools. The
// engine does not read it.
var markOriginal = jsonpatch.Annotation(rollout.AnnotationOriginalSpec)

// Claimant identifies the release that changes an object, and how it may change it.
type Claimant struct {
	// Claim is the release's own claim, TakeOver that of a dead release which may be replaced.
	Claim, TakeOver string
	// Ended is true if the release of TakeOver has ended and given everything back: what an object has of it is a copy
	// that another client has brought back, and no original is restored from that.
	Ended bool
	// Overwrite is true if edits by another client are overwritten.
	Overwrite bool
	// WriteOriginalSpec is true if custom objects get an annotation with their original, where other tools look for it.
	WriteOriginalSpec bool
}

// object is an object as it was read; name describes it in messages.
type object struct {
	name string
	live Object
}

// Holder returns the claim that holds the object, "" if it is free.
func (o object) Holder() string { return HolderOf(o.live) }

// Live returns the object as it was read.
func (o object) Live() Object { return o.live }

// HolderOf returns the claim on an object, "" if there is none.
func HolderOf(o Object) string { return annotationsOf(o)[rollout.AnnotationHeldBy] }

// Borrowed is a borrowed object as it was read.
type Borrowed struct {
	object
	borrowable Borrowable
	undo       []jsonpatch.Op
	// hasSaved is true if an original is saved on the object.
	hasSaved bool
}

// Borrowable is what a release may change of an object, and so what may be restored on it: a place, or what a script
// may change. The original is saved in an annotation, which any client that may edit the object can change: it is never
// applied to other places.
type Borrowable string

// The kinds of Borrowable.
const (
	// BorrowsByScript is what a script may change of a custom object: its spec, and the user's labels and annotations.
	BorrowsByScript Borrowable = ""
	// BorrowsSelector is a Service's selector.
	BorrowsSelector Borrowable = pathSelector
	// BorrowsRules are the rules of an HTTPRoute.
	BorrowsRules Borrowable = pathRules
)

// Allows reports whether a release may change the place at a pointer; the marks of a borrowed object are included.
func (p Borrowable) Allows(pointer string) bool {
	switch {
	case slices.Contains(marks, pointer):
		return true
	case p != BorrowsByScript:
		return pointer == string(p)
	}
	return pointer == markOriginal || pointer == pathSpec || isUserMetadata(pointer)
}

// isUserMetadata reports whether a pointer is that of a label or annotation that is not reserved.
func isUserMetadata(pointer string) bool {
	for _, part := range []string{"/metadata/labels/", "/metadata/annotations/"} {
		if key, is := strings.CutPrefix(pointer, part); is {
			return key != "" && !strings.Contains(key, "/") && !reserved(jsonpatch.Unescape(key), "")
		}
	}
	return false
}

// ReadBorrowed reads what is saved on an object; name describes it in messages. It fails with failure.Drift if that
// cannot be parsed, or would change other places than a release does.
func ReadBorrowed(name string, live Object, borrowable Borrowable) (Borrowed, error) {
	b := Borrowed{object: object{name, live}, borrowable: borrowable}
	saved, there := annotationsOf(live)[rollout.AnnotationRestore]
	if !there {
		return b, nil
	}
	undo, err := jsonpatch.ParseUndo(saved, borrowable.Allows)
	if err != nil {
		by, _ := fieldmanager.LastOther(&unstructured.Unstructured{Object: live},
			jsonpatch.Annotation(rollout.AnnotationRestore))
		return b, failure.New(failure.Drift, "%s: its annotation %s has been changed by %s and is not followed (%v): "+
			"restore its previous value", name, rollout.AnnotationRestore, cmp.Or(by, "another client"), err)
	}
	b.undo, b.hasSaved = undo, true
	return b, nil
}

// Original returns the object from before a release changed it, with all later changes by others in places that the
// release does not own.
func (b Borrowed) Original() Object { return jsonpatch.Apply(b.live, b.undo) }

// borrowedPaths returns the places of the object that the release owns, without the marks.
func borrowedPaths(undo []jsonpatch.Op) []string {
	var out []string
	for _, op := range undo {
		if !slices.Contains(marks, op.Path) && op.Path != markOriginal {
			out = append(out, op.Path)
		}
	}
	slices.Sort(out)
	return out
}

// Digest returns the SHA-256, in hexadecimal, of the values at these places of an object.
func Digest(o Object, paths []string) string {
	parts := map[string]any{}
	for _, p := range paths {
		if value, there := jsonpatch.At(o, p); there {
			parts[p] = value
		}
	}
	return digest.Of(string(jsonpatch.Encode(parts))) // members in order of their names
}

// CheckClaim checks that the claimant may write to an object with this claim on it: failure.Claimed with the holder
// otherwise.
func (h Claimant) CheckClaim(name, holder string) error {
	if holder == "" || holder == h.Claim || workload.MayTakeOver(h.Claim, h.TakeOver, holder) {
		return nil
	}
	f := failure.New(failure.Claimed, "%s is held by another release (%s): wait until that ends, or stop it", name,
		workload.HolderName(h.Claim, holder))
	f.Holder = holder
	return f
}

// Write is a change of an object. Its tests hold for the object as it was read.
type Write struct {
	Tests   []jsonpatch.Op
	Changes []jsonpatch.Op
	// paths are the places that the release owns after the write.
	paths []string
}

// Paths returns the places of the object that the release owns after the write.
func (w Write) Paths() []string { return w.paths }

// Stamp returns the write with the digest of what the API server will keep of it.
func (w Write) Stamp(digest string) []jsonpatch.Op {
	return slices.Concat(w.Tests, w.Changes, []jsonpatch.Op{jsonpatch.Add(
		jsonpatch.Annotation(rollout.AnnotationWritten), digest)})
}

// withoutCopy returns the object without the original that it has as a copy of an ended release's; the marks of that
// release are replaced or removed like any others.
func (b Borrowed) withoutCopy(h Claimant) Borrowed {
	brought := fieldmanager.WrittenByOther(&unstructured.Unstructured{Object: b.live}, rollout.AnnotationHeldBy)
	if brought && h.Ended && h.TakeOver != "" && b.Holder() == h.TakeOver {
		b.undo, b.hasSaved = nil, false
		if _, copied := jsonpatch.At(b.live, markOriginal); copied {
			b.undo = []jsonpatch.Op{jsonpatch.Remove(markOriginal)}
		}
	}
	return b
}

// PlanWrite decides what to write so that the places are what derive makes of the original; nil if nothing. derive
// returns the object and the places that the release owns. It fails with failure.Claimed, failure.Drift or what derive
// fails with.
func (b Borrowed) PlanWrite(h Claimant, derive func(original Object) (Object, []string, error)) (*Write, error) {
	if err := h.CheckClaim(b.name, b.Holder()); err != nil {
		return nil, err
	}
	b = b.withoutCopy(h)
	original := b.Original()
	wanted, paths, err := derive(clone(original))
	if err != nil {
		return nil, err
	}
	saved, originalSpec, err := b.originalNotes(h, original, paths)
	if err != nil {
		return nil, err
	}
	heldBy, restore := jsonpatch.Annotation(rollout.AnnotationHeldBy), jsonpatch.Annotation(rollout.AnnotationRestore)
	signs := []string{heldBy, restore, markClaimed}
	jsonpatch.Put(wanted, heldBy, h.Claim)
	jsonpatch.Put(wanted, restore, saved)
	jsonpatch.Put(wanted, markClaimed, workload.LabelClaimedValue)
	if originalSpec != "" {
		signs = append(signs, markOriginal)
		jsonpatch.Put(wanted, markOriginal, originalSpec)
	}
	return b.planWrite(h, wanted, places{previous: borrowedPaths(b.undo), owned: paths, marks: signs,
		fresh: !b.hasSaved})
}

// originalNotes returns the annotations that describe the original: saved is applied when the object is restored,
// originalSpec is for other tools, "" if there is none.
func (b Borrowed) originalNotes(h Claimant, original Object, paths []string) (saved, originalSpec string, err error) {
	undo := undoTo(original, paths)
	saved = string(jsonpatch.Encode(undo))
	if len(saved) > maxSaved {
		return "", "", failure.New(failure.Refused, "%s is too large to be saved on itself: %d bytes, the most is %d",
			b.name, len(saved), maxSaved)
	}
	if b.borrowable != BorrowsByScript || !h.WriteOriginalSpec && !b.hasOriginalSpec() {
		return saved, "", nil
	}
	originalSpec = originalSpecOf(original)
	if len(saved)+len(originalSpec) > maxSaved { // the restore has priority
		originalSpec = ""
	}
	if originalSpec != "" || b.hasOriginalSpec() {
		saved = string(jsonpatch.Encode(append(undo, jsonpatch.Remove(markOriginal))))
	}
	return saved, originalSpec, nil
}

// hasOriginalSpec reports whether the object already has the annotation for other tools.
func (b Borrowed) hasOriginalSpec() bool {
	return slices.ContainsFunc(b.undo, func(op jsonpatch.Op) bool { return op.Path == markOriginal })
}

// places are the places of an object to write.
type places struct {
	// previous are the places that the release owned so far, owned those that it owns from now on; marks are the marks
	// that record this.
	previous, owned, marks []string
	// fresh is true if nothing was written there before.
	fresh bool
}

// planWrite decides what to write so that the object is as wanted in these places; nil if nothing. It fails with
// failure.Drift.
func (o object) planWrite(h Claimant, wanted Object, p places) (*Write, error) {
	changes := jsonpatch.Diff(o.live, wanted, slices.Concat(p.previous, p.owned))
	drifted := !p.fresh && o.drifted(p.previous)
	if drifted && len(changes) > 0 && !h.Overwrite {
		return nil, o.driftError(p.previous)
	}
	all := jsonpatch.Diff(o.live, wanted, slices.Concat(p.previous, p.owned, p.marks))
	if len(all) == 0 && !p.fresh && !drifted {
		return nil, nil
	}
	ours := slices.Compact(slices.Sorted(slices.Values(p.owned)))
	return &Write{Tests: o.tests(), Changes: all, paths: ours}, nil
}

// undoTo returns the patch that restores these places of the original and removes the marks.
func undoTo(original Object, paths []string) []jsonpatch.Op {
	undo := jsonpatch.Undo(original, slices.Compact(slices.Sorted(slices.Values(paths))))
	for _, m := range marks {
		undo = append(undo, jsonpatch.Remove(m))
	}
	return undo
}

// PlanRestore decides what to write so that the object is its original again; nil if nothing. It fails with
// failure.Claimed and failure.Drift.
func (b Borrowed) PlanRestore(h Claimant) (*Write, error) {
	if !b.hasSaved && b.Holder() == "" {
		return nil, nil
	}
	if err := h.CheckClaim(b.name, b.Holder()); err != nil {
		return nil, err
	}
	b = b.withoutCopy(h)
	original := b.Original()
	removed := append(slices.Clone(marks), jsonpatch.Annotation(rollout.AnnotationRepair))
	for _, m := range removed {
		jsonpatch.Drop(original, m)
	}
	removed = append(removed, markOriginal) // unless the original has it
	kept := borrowedPaths(b.undo)
	changes := jsonpatch.Diff(b.live, original, kept)
	if b.hasSaved && len(changes) > 0 && !h.Overwrite && b.drifted(kept) {
		return nil, b.driftError(kept)
	}
	return &Write{Tests: b.tests(), Changes: slices.Concat(changes, jsonpatch.Diff(b.live, original, removed))}, nil
}

// Ops returns the write without a digest, for one that leaves no mark.
func (w Write) Ops() []jsonpatch.Op { return slices.Concat(w.Tests, w.Changes) }

// EditedPlaces returns the places of an object that a release borrowed or created, if another client has changed any of
// them since the release wrote them; nil otherwise. If the saved original cannot be parsed, its annotation is that
// place.
func EditedPlaces(live Object) []string {
	o := object{live: live}
	var kept []string
	switch saved, borrowed := annotationsOf(live)[rollout.AnnotationRestore]; {
	case o.Holder() == "":
		return nil
	case borrowed:
		anywhere := func(string) bool { return true } // nothing of it is applied
		undo, err := jsonpatch.ParseUndo(saved, anywhere)
		if err != nil {
			return []string{jsonpatch.Annotation(rollout.AnnotationRestore)}
		}
		kept = borrowedPaths(undo)
	default:
		kept = Created{o}.places()
	}
	if !o.drifted(kept) {
		return nil
	}
	return kept
}

// drifted reports whether another client has written to these places since a release did.
func (o object) drifted(kept []string) bool {
	return annotationsOf(o.live)[rollout.AnnotationWritten] != Digest(o.live, kept)
}

func (o object) driftError(kept []string) error {
	by, _ := fieldmanager.LastOther(&unstructured.Unstructured{Object: o.live}, kept...)
	return failure.New(failure.Drift, "%s has been edited by %s since this release wrote it", o.name,
		cmp.Or(by, "another client"))
}

// tests returns what must still hold when the write arrives.
func (o object) tests() []jsonpatch.Op {
	out := []jsonpatch.Op{jsonpatch.Test("/metadata/resourceVersion",
		jsonpatch.DigString(o.live, "metadata", "resourceVersion"))}
	if holder := o.Holder(); holder != "" {
		out = append(out, jsonpatch.Test(jsonpatch.Annotation(rollout.AnnotationHeldBy), holder))
	}
	return out
}

// refuse returns a failure.Refused for something that cannot be expressed.
func refuse(format string, args ...any) error {
	return failure.New(failure.Refused, format, args...)
}

// AnnotationPlaces is on objects that a release created: the places of the object that the release controls, as a JSON
// list of JSON Pointers. Other places belong to other clients.
const AnnotationPlaces = "slipway.io/places"

// Created is an object that a release creates, as it was read; its live object is nil if it does not exist.
type Created struct{ object }

// NewCreated returns the object that a release creates, from its live state. name describes it in messages.
func NewCreated(name string, live Object) Created { return Created{object{name, live}} }

// Foreign reports whether an object of that name exists that no release created.
func (c Created) Foreign() bool {
	return c.live != nil && jsonpatch.DigString(c.live, "metadata", "labels", strategy.LabelCanaryOf) == ""
}

// CheckClaim fails unless the claimant may change or delete the object.
func (c Created) CheckClaim(h Claimant) error {
	if c.Foreign() {
		return failure.New(failure.Refused, "%s exists already, and no release has created it: delete or rename it, "+
			"since a release creates one of that name", c.name)
	}
	return h.CheckClaim(c.name, c.Holder())
}

// AnnotatePlaces returns an object to be created with the annotation of the places that the release owns.
func AnnotatePlaces(desired Object, paths []string) Object {
	out := clone(desired)
	list := jsonpatch.Encode(slices.Sorted(slices.Values(paths)))
	jsonpatch.Put(out, jsonpatch.Annotation(AnnotationPlaces), string(list))
	return out
}

// Stamped returns an object to be created with the digest of what the API server will keep of it.
func Stamped(desired Object, digest string) Object {
	out := clone(desired)
	jsonpatch.Put(out, jsonpatch.Annotation(rollout.AnnotationWritten), digest)
	return out
}

// PlanWrite decides what to write so that the object is as desired in these places; nil if nothing. The object must
// exist. It fails with failure.Refused if no release created it, failure.Claimed, or failure.Drift if another client
// has edited it.
func (c Created) PlanWrite(h Claimant, desired Object, paths []string) (*Write, error) {
	if err := c.CheckClaim(h); err != nil {
		return nil, err
	}
	signs := []string{jsonpatch.Annotation(rollout.AnnotationHeldBy), jsonpatch.Annotation(AnnotationPlaces),
		markClaimed}
	return c.planWrite(h, AnnotatePlaces(desired, paths), places{previous: c.places(), owned: paths, marks: signs})
}

// places returns the places that are annotated on the object; its spec if the annotation cannot be parsed.
func (c Created) places() []string {
	var out []string
	if json.Unmarshal([]byte(annotationsOf(c.live)[AnnotationPlaces]), &out) != nil {
		return []string{pathSpec}
	}
	return slices.DeleteFunc(out, func(p string) bool {
		return p != pathSpec && p != pathSelector && !isUserMetadata(p)
	})
}
