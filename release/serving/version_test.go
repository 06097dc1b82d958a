package serving_test

import (
	"bytes"
	"compress/gzip"
	"testing"

	"github.com/stretchr/testify/require"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

func TestPack_RoundTrips(t *testing.T) {
	t.Parallel()
	packed, err := validVersion().Pack()
	require.NoError(t, err)
	again, err := validVersion().Pack()
	require.NoError(t, err)
	require.Equal(t, packed, again, "the same version gives the same bytes")
	v, err := serving.Unpack(packed)
	require.NoError(t, err)
	require.Equal(t, validVersion(), v)
	for name, broken := range map[string][]byte{"nothing": nil, "no gzip": []byte("{}"), "cut": packed[:len(packed)-12],
		"no JSON": gzipped(t, "nonsense")} {
		_, err := serving.Unpack(broken)
		require.ErrorContains(t, err, "a version of a serving cannot be read", name)
	}
}

func TestUnpack_RefusesHugeVersion(t *testing.T) {
	t.Parallel()
	_, err := serving.Unpack(gzipped(t, `{"id":"`+string(bytes.Repeat([]byte("a"), 33<<20))+`"}`))
	require.ErrorContains(t, err, "more than 33554432 bytes", "a small input must not exhaust the memory")
}

func gzipped(t *testing.T, text string) []byte {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return packed.Bytes()
}

func TestDigest_DiffersBetweenVersions(t *testing.T) {
	t.Parallel()
	digest := func(change func(v *serving.Version)) string {
		v := validVersion()
		change(&v)
		d, err := v.Digest()
		require.NoError(t, err)
		require.Regexp(t, `^[0-9a-f]{16}$`, d)
		return d
	}
	seen := map[string]string{}
	for name, change := range map[string]func(v *serving.Version){
		"unchanged":   func(*serving.Version) {},
		"UID":         func(v *serving.Version) { v.UID = "u2" },
		"input":       func(v *serving.Version) { v.Spec.InputConfig = "{}" },
		"affinity":    func(v *serving.Version) { v.AffinityMode = "none" },
		"image":       func(v *serving.Version) { image(v, func(s *kuscia.AppImageSpec) { s.Image.Tag = "2" }) },
		"configs":     func(v *serving.Version) { v.AppImages["app"].ConfigTemplates["app.conf"] = "x" },
		"party order": func(v *serving.Version) { p := v.Spec.Parties; p[0], p[1] = p[1], p[0] },
	} {
		d := digest(change)
		require.Empty(t, seen[d], "%s is another version", name)
		seen[d] = name
	}
	require.Equal(t, "unchanged", seen[digest(func(*serving.Version) {})], "the same version has the same digest")
}

func FuzzUnpack(f *testing.F) {
	packed, err := validVersion().Pack()
	require.NoError(f, err)
	f.Add(packed)
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := serving.Unpack(data)
		if err != nil {
			return
		}
		again, err := v.Pack()
		require.NoError(t, err)
		w, err := serving.Unpack(again)
		require.NoError(t, err)
		one, err := v.Digest()
		require.NoError(t, err)
		two, err := w.Digest()
		require.NoError(t, err)
		require.Equal(t, one, two, "packing changes nothing")
	})
}

func TestCheckParties(t *testing.T) {
	t.Parallel()
	v := validVersion() // alice and bob
	v.Spec.Parties[1].Role = "host"
	place, has := v.PartyIndex("bob", "s1-host")
	require.True(t, has)
	require.Equal(t, 1, place)
	for _, other := range [][2]string{{"bob", "s1"}, {"alice", "s1-host"}, {"carol", "s1"}, {"bob", ""}} {
		_, has := v.PartyIndex(other[0], other[1])
		require.False(t, has, "%v is not one of its Deployments", other)
	}
	alice, bob, carol := kuscia.Party{DomainID: "alice"}, kuscia.Party{DomainID: "bob", Role: "host"},
		kuscia.Party{DomainID: "carol"}
	cases := map[string]struct {
		reason, says string
		parties      []kuscia.Party
	}{
		"same":  {"the same parties", "", []kuscia.Party{alice, bob}},
		"order": {"another order is legal: each is found by its name", "", []kuscia.Party{bob, alice}},
		"new": {"there is no previous version to roll back to", "party carol is new",
			[]kuscia.Party{alice, bob, carol}},
		"missing": {"its objects would never be deleted", "party bob/host is missing", []kuscia.Party{alice}},
		"role": {"another role is another Deployment", "party bob is new, party bob/host is missing",
			[]kuscia.Party{alice, {DomainID: "bob"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			says := v.CheckParties(tc.parties)
			if tc.says != "" {
				tc.says += ": the parties of a serving cannot be changed: restore them, or create another serving"
			}
			require.Equal(t, tc.says, says, tc.reason)
		})
	}
}
