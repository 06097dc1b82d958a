package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"slipway.io/slipway/release/account"
	"slipway.io/slipway/release/jsonpatch"
)

// Written says who wrote the identities of an installation.
type Written struct {
	// By is the user, With the command that this user ran, and At the time, in RFC 3339.
	By   string `json:"by,omitempty"`
	With string `json:"with,omitempty"`
	At   string `json:"at,omitempty"`
}

// CheckIdentity returns why a text cannot be an identity whose edits pass. An identity is one user, exactly: a pattern
// would let accounts pass that do not exist yet, and that others may create or act as.
func CheckIdentity(text string) error {
	switch {
	case text == "" || strings.TrimSpace(text) != text:
		return fmt.Errorf("%q is not a user: want the exact name, for example %s", text, DefaultIdentities()[0])
	case strings.ContainsAny(text, "{}*"):
		return fmt.Errorf("%q is a pattern: want the exact name of one user. The administrators of a namespace may act "+
			"as its accounts: name the account of each engine and party, in a namespace of its own", text)
	case strings.HasPrefix(text, "system:serviceaccounts"):
		return fmt.Errorf("%q is a group: want the exact name of one user, for example %s", text,
			DefaultIdentities()[0])
	case strings.HasPrefix(text, "system:serviceaccount:") && !account.IsServiceAccount(text):
		return fmt.Errorf("%q is not a service account: want system:serviceaccount:NAMESPACE:NAME", text)
	}
	return nil
}

// CheckIdentities is CheckIdentity for a list.
func CheckIdentities(list []string) error {
	var all []error
	for _, identity := range list {
		all = append(all, CheckIdentity(identity))
	}
	return errors.Join(all...)
}

// Since returns o as it is written in place of an earlier list: if the identities and their writer are the same, the
// time remains that of the earlier list, so that nothing is written.
func (o Options) Since(identities []string, before Written) Options {
	same := slices.Equal(sorted(o.withDefaults().Identities), sorted(identities))
	if same && o.Written.By == before.By && o.Written.With == before.With {
		o.Identities, o.Written = identities, before
	}
	return o
}

// Dropped returns the identities of an earlier list that o does not let pass any more.
func (o Options) Dropped(identities []string) []string {
	wanted := o.withDefaults().Identities
	return slices.DeleteFunc(slices.Clone(identities), func(identity string) bool {
		return slices.Contains(wanted, identity)
	})
}

// People returns the identities that are no service accounts. They may be people, whose edits pass too.
func People(identities []string) []string {
	return slices.DeleteFunc(slices.Clone(identities), account.IsServiceAccount)
}

func sorted(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }

// annotations are those of every object of an installation.
func (o Options) annotations() map[string]string {
	out := map[string]string{AnnotationIdentities: string(jsonpatch.Encode(o.Identities))}
	if o.Written != (Written{}) {
		out[AnnotationWritten] = string(jsonpatch.Encode(o.Written))
	}
	return out
}

// readIdentities reads these annotations. What cannot be read is empty.
func readIdentities(annotations map[string]string) (identities []string, written Written) {
	if json.Unmarshal([]byte(annotations[AnnotationIdentities]), &identities) != nil {
		identities = nil
	}
	if json.Unmarshal([]byte(annotations[AnnotationWritten]), &written) != nil {
		written = Written{}
	}
	return identities, written
}
