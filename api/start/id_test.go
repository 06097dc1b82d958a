package start

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStart_IDs(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 2, 9, 30, 0, 0, time.UTC)
	of := func(prefix, key string) *Start {
		return New(nil, nil, Request{Prefix: prefix, Subject: prefix, Key: key})
	}
	for _, c := range []struct{ reason, prefix, want string }{
		{"the ID begins with the plan's name", "shop", `^shop-20261102093000-[a-z2-7]{5}$`},
		{"capital letters are not legal in names of objects", "Shop", `^shop-20261102093000-`},
		{"a long name is truncated", strings.Repeat("x", 63), `^x{40}-20261102093000-`},
		{"a truncated name does not end in a dot or dash", strings.Repeat("x", 39) + ".y", `^x{39}-20261102093000-`},
	} {
		require.Regexp(t, c.want, of(c.prefix, "").newID(at), c.reason)
		require.Regexp(t, `^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`, of(c.prefix, "key").keyedID(""), c.reason)
		require.LessOrEqual(t, len(of(c.prefix, "key").keyedID("")), 63, c.reason)
	}
	first, second := of("shop", "").newID(at), of("shop", "").newID(at)
	require.NotEqual(t, first, second, "two releases in the same second have different IDs")
	keyed, repeated := of("shop", "k").keyedID(""), of("shop", "k").keyedID("")
	require.Equal(t, keyed, repeated, "the same key gives the same ID")
	require.NotEqual(t, of("shop", "k").keyedID(""), of("shop", "l").keyedID(""), "another key gives another ID")
	require.NotEqual(t, of("shop", "k").keyedID(""), of("shop", "k").keyedID("shop-abc"),
		"a key that is reused after its lifetime gives another ID")
	require.Len(t, KeyLabel("k"), 40, "a label has at most 63 characters")
}

func TestDigest_DiffersByRequestBody(t *testing.T) {
	t.Parallel()
	of := func(body any) string { return New(nil, nil, Request{DigestInput: body}).digest() }
	type request struct{ Image string }
	first, repeated := of(request{"app:2"}), of(request{"app:2"})
	require.Equal(t, first, repeated, "a repeated request has the same digest")
	require.NotEqual(t, of(request{"app:2"}), of(request{"app:3"}), "another body under the same key is refused")
}
