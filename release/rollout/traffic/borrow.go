package traffic

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/fieldmanager"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// maxSaved bounds what is saved on an object, in bytes: the API server takes 256 KiB of annotations, and the user's own count too.
const maxSaved = 100 << 10

// annotationApplied is kubectl's own copy of what was applied. No script sees it and nothing of ours touches it.
const annotationApplied = "kubectl.kubernetes.io/last-applied-configuration"

// marks are the places of what stands on a borrowed object for as long as it is borrowed: annotations, and the label by which a watch finds
// it among everybody's objects.
var marks = []string{
	jsonpatch.Annotation(rollout.AnnotationHeldBy), jsonpatch.Annotation(rollout.AnnotationRestore),
	jsonpatch.Annotation(rollout.AnnotationWritten), markClaimed,
}

var markClaimed = jsonpatch.Label(workloadops.LabelClaimed)

// markOriginal is the place of what other tools read of a custom object that is borrowed. Nothing of ours reads it.
var markOriginal = jsonpatch.Annotation(rollout.AnnotationOriginalSpec)

// Hand is who asks for a change of an object.
type Hand struct {
	// Claim is ours, TakeOver that of a dead release which may be replaced.
	Claim, TakeOver string
	// Overwrite writes over what somebody else has edited.
	Overwrite bool
	// Tells notes on custom objects what they were, where other tools look for it.
	Tells bool
}

// object is an object as it was read; name describes it in messages.
type object struct {
	name string
	live Object
}

// Holder is the claim that the object is held by, "" when it is free.
func (o object) Holder() string { return HolderOf(o.live) }

// Live is the object as it was read.
func (o object) Live() Object { return o.live }

// HolderOf is the claim that stands on an object, "" when none does.
func HolderOf(o Object) string { return annotationsOf(o)[rollout.AnnotationHeldBy] }

// Borrowed is a borrowed object as it was read.
type Borrowed struct {
	object
	borrowable Borrowable
	undo       []jsonpatch.Op
	// taken says that something of ours is saved on it.
	taken bool
}

// Borrowable is what a release may change of an object, and so what is given back to it. What is saved stands in an annotation, which
// anybody who may edit the object can change: it is never applied elsewhere.
type Borrowable string

// What there is to borrow.
const (
	// BorrowsByScript are a custom object's: its spec, and the labels and annotations that are its user's.
	BorrowsByScript Borrowable = ""
	// BorrowsSelector is a Service's selector.
	BorrowsSelector Borrowable = "selector"
	// BorrowsRules are the rules of an HTTPRoute.
	BorrowsRules Borrowable = "rules"
)

// Has says whether a pointer is among them, as the marks of a borrowed object are.
func (p Borrowable) Has(pointer string) bool {
	switch {
	case slices.Contains(marks, pointer), p == BorrowsByScript && pointer == markOriginal:
		return true
	case p == BorrowsSelector:
		return pointer == pathSelector
	case p == BorrowsRules:
		return pointer == pathRules
	}
	return pointer == pathSpec || ofTheUser(pointer)
}

// ofTheUser says whether a pointer is that of a label or annotation that is not reserved.
func ofTheUser(pointer string) bool {
	for _, part := range []string{"/metadata/labels/", "/metadata/annotations/"} {
		if key, is := strings.CutPrefix(pointer, part); is {
			return key != "" && !strings.Contains(key, "/") && !reserved(jsonpatch.Unescape(key), "")
		}
	}
	return false
}

// Look reads what is saved on an object; name describes it in messages. It fails with failure.Drift when that cannot be read any more, or
// would change other places than a release does.
func Look(name string, live Object, borrowable Borrowable) (Borrowed, error) {
	b := Borrowed{object: object{name, live}, borrowable: borrowable}
	saved, there := annotationsOf(live)[rollout.AnnotationRestore]
	if !there {
		return b, nil
	}
	undo, err := jsonpatch.ParseUndo(saved, borrowable.Has)
	if err != nil {
		by, _ := fieldmanager.Of(&unstructured.Unstructured{Object: live}, jsonpatch.Annotation(rollout.AnnotationRestore))
		return b, failure.New(failure.Drift, "%s: its annotation %s has been changed by %s and is not followed (%v): put back what stood there",
			name, rollout.AnnotationRestore, cmp.Or(by, "somebody else"), err)
	}
	b.undo, b.taken = undo, true
	return b, nil
}

// Original is the object as it was before a release changed it, with everything that others have changed since in places that are not ours.
func (b Borrowed) Original() Object { return jsonpatch.Apply(b.live, b.undo) }

// borrowedPaths are the places of the object that are ours, apart from the marks.
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

// Digest is the SHA-256, in hexadecimal, of what stands at these places of an object.
func Digest(o Object, paths []string) string {
	parts := map[string]any{}
	for _, p := range paths {
		if value, there := jsonpatch.At(o, p); there {
			parts[p] = value
		}
	}
	raw, err := json.Marshal(parts) // members in order of their names
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// Mine checks that the hand may write to an object with this claim on it: failure.Claimed with the holder otherwise.
func (h Hand) Mine(name, holder string) error {
	if holder == "" || holder == h.Claim || workloadops.MayTakeOver(h.Claim, h.TakeOver, holder) {
		return nil
	}
	f := failure.New(failure.Claimed, "%s is held by another release (%s): wait until that is over, or stop it", name,
		workloadops.Told(h.Claim, holder))
	f.Holder = holder
	return f
}

// Write is a change of an object. Tests hold for the object as it was read.
type Write struct {
	Tests   []jsonpatch.Op
	Changes []jsonpatch.Op
	// paths are the places that are ours afterwards.
	paths []string
}

// Paths are the places of the object that are ours after the write.
func (w Write) Paths() []string { return w.paths }

// Stamp is the write with the digest of what the API server will keep of it.
func (w Write) Stamp(digest string) []jsonpatch.Op {
	return slices.Concat(w.Tests, w.Changes, []jsonpatch.Op{jsonpatch.Add(jsonpatch.Annotation(rollout.AnnotationWritten), digest)})
}

// Want decides what to write so that the places are what derive makes of the original; nil: nothing. derive returns the object and the
// places that are ours. It fails with failure.Claimed, failure.Drift or what derive fails with.
func (b Borrowed) Want(h Hand, derive func(original Object) (Object, []string, error)) (*Write, error) {
	if err := h.Mine(b.name, b.Holder()); err != nil {
		return nil, err
	}
	original := b.Original()
	wanted, paths, err := derive(clone(original))
	if err != nil {
		return nil, err
	}
	saved, told, err := b.notes(h, original, paths)
	if err != nil {
		return nil, err
	}
	heldBy, restore := jsonpatch.Annotation(rollout.AnnotationHeldBy), jsonpatch.Annotation(rollout.AnnotationRestore)
	signs := []string{heldBy, restore, markClaimed}
	jsonpatch.Put(wanted, heldBy, h.Claim)
	jsonpatch.Put(wanted, restore, saved)
	jsonpatch.Put(wanted, markClaimed, workloadops.LabelClaimedValue)
	if told != "" {
		signs = append(signs, markOriginal)
		jsonpatch.Put(wanted, markOriginal, told)
	}
	return b.want(h, wanted, places{kept: borrowedPaths(b.undo), ours: paths, signs: signs, fresh: !b.taken})
}

// notes are what is noted on the object of what it was: saved is followed when it is given back, told is for other tools, "" for nothing.
func (b Borrowed) notes(h Hand, original Object, paths []string) (saved, told string, err error) {
	undo := undoTo(original, paths)
	raw, err := json.Marshal(undo)
	switch {
	case err != nil:
		return "", "", err
	case len(raw) > maxSaved:
		return "", "", failure.New(failure.Refused, "%s is too large to be saved on itself: %d bytes, the most is %d", b.name, len(raw), maxSaved)
	case b.borrowable != BorrowsByScript || !h.Tells && !b.tells():
		return string(raw), "", nil
	}
	told = toldOf(original)
	if len(raw)+len(told) > maxSaved { // other tools have to do without
		told = ""
	}
	if told != "" || b.tells() {
		raw, err = json.Marshal(append(undo, jsonpatch.Remove(markOriginal)))
	}
	return string(raw), told, err
}

// tells says that what the object was is noted on it for other tools already.
func (b Borrowed) tells() bool {
	return slices.ContainsFunc(b.undo, func(op jsonpatch.Op) bool { return op.Path == markOriginal })
}

// places are where an object is to be written.
type places struct {
	// kept were ours so far, ours are so from now on; signs are the marks that say so.
	kept, ours, signs []string
	// fresh says that nothing was written there before.
	fresh bool
}

// want decides what to write so that the object is as wanted in these places; nil: nothing. It fails with failure.Drift.
func (o object) want(h Hand, wanted Object, p places) (*Write, error) {
	changes := jsonpatch.Diff(o.live, wanted, slices.Concat(p.kept, p.ours))
	drifted := !p.fresh && o.drifted(p.kept)
	if drifted && len(changes) > 0 && !h.Overwrite {
		return nil, o.drift(p.kept)
	}
	signs := jsonpatch.Diff(o.live, wanted, p.signs)
	if len(changes) == 0 && len(signs) == 0 && !p.fresh && !drifted {
		return nil, nil
	}
	ours := slices.Compact(slices.Sorted(slices.Values(p.ours)))
	return &Write{Tests: o.tests(), Changes: withoutTwins(slices.Concat(changes, signs)), paths: ours}, nil
}

// withoutTwins leaves out the second making of the same parent, which would empty it.
func withoutTwins(ops []jsonpatch.Op) []jsonpatch.Op {
	made := map[string]bool{}
	return slices.DeleteFunc(ops, func(op jsonpatch.Op) bool {
		if value, is := op.Value.(map[string]any); !is || !op.Adds() || len(value) > 0 {
			return false
		}
		again := made[op.Path]
		made[op.Path] = true
		return again
	})
}

// undoTo is the patch that brings these places back to what they are in the original, and takes the marks away.
func undoTo(original Object, paths []string) []jsonpatch.Op {
	var undo []jsonpatch.Op
	for _, p := range slices.Compact(slices.Sorted(slices.Values(paths))) {
		if value, there := jsonpatch.At(original, p); there {
			undo = append(undo, jsonpatch.Add(p, value))
		} else {
			undo = append(undo, jsonpatch.Remove(p))
		}
	}
	for _, m := range marks {
		undo = append(undo, jsonpatch.Remove(m))
	}
	return undo
}

// Return decides what to write so that the object is its original again; nil: nothing. It fails with failure.Claimed and failure.Drift.
func (b Borrowed) Return(h Hand) (*Write, error) {
	if !b.taken && b.Holder() == "" {
		return nil, nil
	}
	if err := h.Mine(b.name, b.Holder()); err != nil {
		return nil, err
	}
	original := b.Original()
	gone := append(slices.Clone(marks), jsonpatch.Annotation(rollout.AnnotationRepair))
	for _, m := range gone {
		jsonpatch.Drop(original, m)
	}
	gone = append(gone, markOriginal) // unless it was there before
	kept := borrowedPaths(b.undo)
	changes := jsonpatch.Diff(b.live, original, kept)
	if b.taken && len(changes) > 0 && !h.Overwrite && b.drifted(kept) {
		return nil, b.drift(kept)
	}
	return &Write{Tests: b.tests(), Changes: slices.Concat(changes, jsonpatch.Diff(b.live, original, gone))}, nil
}

// Ops is the write as it is, for one that leaves no mark.
func (w Write) Ops() []jsonpatch.Op { return slices.Concat(w.Tests, w.Changes) }

// Edited are the places of an object that a release borrowed or made of which somebody else has changed something since the release wrote
// them; none of one that is as it was left. Of one that cannot be read any more, what cannot be read is that place.
func Edited(live Object) []string {
	o := object{live: live}
	var kept []string
	switch saved, borrowed := annotationsOf(live)[rollout.AnnotationRestore]; {
	case o.Holder() == "":
		return nil
	case borrowed:
		anywhere := func(string) bool { return true } // nothing of it is followed
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

// drifted says whether somebody else has written to these places since a release did.
func (o object) drifted(kept []string) bool {
	return annotationsOf(o.live)[rollout.AnnotationWritten] != Digest(o.live, kept)
}

func (o object) drift(kept []string) error {
	by, _ := fieldmanager.Of(&unstructured.Unstructured{Object: o.live}, kept...)
	return failure.New(failure.Drift, "%s has been edited by %s since this release wrote it", o.name, cmp.Or(by, "somebody else"))
}

// tests are what must still hold when the write arrives.
func (o object) tests() []jsonpatch.Op {
	out := []jsonpatch.Op{jsonpatch.Test("/metadata/resourceVersion", DigString(o.live, "metadata", "resourceVersion"))}
	if holder := o.Holder(); holder != "" {
		out = append(out, jsonpatch.Test(jsonpatch.Annotation(rollout.AnnotationHeldBy), holder))
	}
	return out
}

// refuse is a failure.Refused of something that cannot be expressed.
func refuse(format string, args ...any) error {
	return failure.New(failure.Refused, "%s", fmt.Sprintf(format, args...))
}

// AnnotationPlaces stands on objects that a release created: the places of the object that the release keeps as it wants them, as a JSON
// list of JSON Pointers. What others add elsewhere is theirs.
const AnnotationPlaces = "slipway.io/places"

// Created is an object that a release makes, as it is found; its live object is nil when it is not there.
type Created struct{ object }

// LookCreated looks at an object that a release makes. name describes it in messages.
func LookCreated(name string, live Object) Created { return Created{object{name, live}} }

// Foreign says that an object of that name is there, and that no release has made it.
func (c Created) Foreign() bool {
	return c.live != nil && DigString(c.live, "metadata", "labels", strategy.LabelCanaryOf) == ""
}

// Mine fails unless the hand may change or delete the object.
func (c Created) Mine(h Hand) error {
	if c.Foreign() {
		return failure.New(failure.Refused, "%s is there already, and no release has made it: delete or rename it, since a release makes one "+
			"of that name", c.name)
	}
	return h.Mine(c.name, c.Holder())
}

// Sign notes on an object that is to be created which of its places are ours.
func Sign(desired Object, paths []string) Object {
	out := clone(desired)
	jsonpatch.Put(out, jsonpatch.Annotation(AnnotationPlaces), list(paths))
	return out
}

// Stamped is an object to be created with the digest of what the API server will keep of it.
func Stamped(desired Object, digest string) Object {
	out := clone(desired)
	jsonpatch.Put(out, jsonpatch.Annotation(rollout.AnnotationWritten), digest)
	return out
}

// Want decides what to write so that the object is as desired in these places; nil: nothing. The object is there. It fails with
// failure.Refused when no release made it, failure.Claimed, or failure.Drift when somebody else has edited it.
func (c Created) Want(h Hand, desired Object, paths []string) (*Write, error) {
	if err := c.Mine(h); err != nil {
		return nil, err
	}
	signs := []string{jsonpatch.Annotation(rollout.AnnotationHeldBy), jsonpatch.Annotation(AnnotationPlaces), markClaimed}
	return c.want(h, Sign(desired, paths), places{kept: c.places(), ours: paths, signs: signs})
}

// places are the places that were noted on the object; nothing legible: its spec.
func (c Created) places() []string {
	var out []string
	if json.Unmarshal([]byte(annotationsOf(c.live)[AnnotationPlaces]), &out) != nil {
		return []string{pathSpec}
	}
	return slices.DeleteFunc(out, func(p string) bool { return p != pathSpec && p != pathSelector && !ofTheUser(p) })
}

func list(paths []string) string {
	raw, err := json.Marshal(slices.Sorted(slices.Values(paths)))
	if err != nil {
		return "[]"
	}
	return string(raw)
}
