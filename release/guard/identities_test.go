package guard

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const worker = "system:serviceaccount:slipway:slipway"

// An identity is one user: a pattern would let accounts pass that the administrators of a namespace may create, or act
// as.
func TestCheckIdentity(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ reason, identity, says string }{
		"ServiceAccount":   {"The account of an engine.", worker, ""},
		"User":             {"A user of a certificate.", "o'neil@example.com", ""},
		"EveryNamespace":   {"It was the default once.", "system:serviceaccount:{namespace}:slipway-party", "is a pattern"},
		"Star":             {"Kubernetes has no patterns of users either.", "system:serviceaccount:*:slipway", "is a pattern"},
		"Group":            {"A group is no user.", "system:serviceaccounts:shop", "is a group"},
		"Incomplete":       {"An account has a namespace and a name.", "system:serviceaccount:slipway", "is not a service account"},
		"WithoutName":      {"An account has a name.", "system:serviceaccount:slipway:", "is not a service account"},
		"Empty":            {"An unset variable.", "", "is not a user"},
		"SurroundingSpace": {"A list with a space.", " anna", "is not a user"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := CheckIdentity(c.identity)
			if c.says == "" {
				require.NoError(t, err, c.reason)
				return
			}
			require.ErrorContains(t, err, c.says, c.reason)
		})
	}
	require.NoError(t, CheckIdentities(DefaultIdentities()))
	require.ErrorContains(t, CheckIdentities([]string{"anna", "{namespace}"}), "{namespace}")
}

func TestIdentities_PassAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	require.Equal(t, `!(request.userInfo.username in ['system:serviceaccount:slipway:slipway', 'o\'neil'])`,
		notOneOf([]string{worker, "o'neil"}))
	found := Find(unstructureds(Policies(Options{Identities: []string{worker}}, "v1", "v1")))
	require.Len(t, found, 1)
	require.True(t, found[0].Passes(worker))
	require.False(t, found[0].Passes("system:serviceaccount:shop:slipway"), "the account of another namespace")
	require.False(t, found[0].Passes("anna"))
}

// A guard of an earlier version may have the placeholder: it names no user now, and the guard is outdated.
func TestIdentities_OfEarlierVersion_AreOutdated(t *testing.T) {
	t.Parallel()
	policies := unstructureds(Policies(Options{}, "v1", "v1"))
	for i := range policies {
		policies[i].SetAnnotations(map[string]string{
			AnnotationIdentities: `["system:serviceaccount:slipway:slipway","system:serviceaccount:{namespace}:slipway-party"]`})
	}
	found := Find(policies)
	require.False(t, found[0].Passes("system:serviceaccount:shop:slipway-party"))
	require.NotEmpty(t, found[0].Outdated)
}

// The list has a writer and a time, which stays as long as the list does.
func TestList_KeepsItsTime_UntilItChanges(t *testing.T) {
	t.Parallel()
	before := Written{By: "anna", With: "slipway dev", At: "2026-01-01T00:00:00Z"}
	installed := Find(unstructureds(Policies(Options{Identities: []string{worker, "b"}, Written: before}, "v1", "v1")))[0]
	require.Equal(t, before, installed.Written)
	now := Written{By: "anna", With: "slipway dev", At: "2026-02-02T00:00:00Z"}
	for name, c := range map[string]struct {
		reason  string
		options Options
		written Written
		dropped []string
	}{
		"Same":    {"The order means nothing.", Options{Identities: []string{"b", worker}, Written: now}, before, nil},
		"Fewer":   {"Another list is a new one.", Options{Identities: []string{worker}, Written: now}, now, []string{"b"}},
		"More":    {"None is dropped.", Options{Identities: []string{"b", "c", worker}, Written: now}, now, nil},
		"Default": {"Without identities: the default ones.", Options{Written: now}, now, []string{"b"}},
		"ByOther": {"Another writer answers for the list.", Options{Identities: []string{worker, "b"},
			Written: Written{By: "otto", With: "slipway dev", At: now.At}},
			Written{By: "otto", With: "slipway dev", At: now.At}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := c.options.Since(installed.Identities, installed.Written)
			require.Equal(t, c.written, got.Written, c.reason)
			require.ElementsMatch(t, c.dropped, got.Dropped(installed.Identities), c.reason)
		})
	}
	require.Equal(t, []string{"b"}, People(installed.Identities), "only service accounts are no people")
}
