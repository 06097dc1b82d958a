package review_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/review"
)

const whole = `{"apiVersion":"v1","other":{"uid":"x"},"kind":"K","request":{"uid":"u\u0041","user":{"name":"anna","a":[1]},` +
	`"object":{"a":{"uid":"y"}},"n":null}}`

func TestRead(t *testing.T) {
	t.Parallel()
	r, err := review.Read([]byte(whole), "uid", "user", "n")
	require.NoError(t, err)
	require.NoError(t, r.Check("v1", "K"))
	require.Error(t, r.Check("v2", "K"))
	require.Equal(t, "uA", r.Text("uid"))
	require.Equal(t, "anna", r.Member("user", "name"))
	require.Empty(t, r.Member("user", "a"), "no text")
	require.Empty(t, r.Member("n", "name"), "no object")
	require.NotContains(t, r.Request, "object", "members that nothing asks for aren't kept")
	for _, wrong := range []string{"", "[]", `{"request":1}`, `{"request":{`} {
		_, err := review.Read([]byte(wrong), "uid")
		require.Error(t, err, wrong)
	}
	r, err = review.Read([]byte(`{"apiVersion":"v1","kind":"K","request":null}`))
	require.NoError(t, err)
	require.Error(t, r.Check("v1", "K"), "there is no request")
}

// However much of a review there is, what has been read of it is right.
func TestRead_ReturnsWhatABeginningHas(t *testing.T) {
	t.Parallel()
	known := false
	for i := range len(whole) {
		r, err := review.Read([]byte(whole[:i]), "uid", "user")
		require.Error(t, err)
		if uid := r.Text("uid"); uid != "" {
			known = true
			require.Equal(t, "uA", uid)
		}
		require.Contains(t, []string{"", "anna"}, r.Member("user", "name"))
	}
	require.True(t, known)
}

func TestCanonical(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason, a, b string
		equal        bool
	}{
		"Order":   {"the order of members is no difference", `{"a":1,"b":[{"d":2,"c":"<"}]}`, ` {"b":[{"c":"\u003c", "d":2}],"a":1}`, true},
		"List":    {"the order of elements is one", `[1,2]`, `[2,1]`, false},
		"Large":   {"whole numbers keep all digits", `9007199254740993`, `9007199254740992`, false},
		"Float":   {"a fraction is another type", `1`, `1.0`, false},
		"Null":    {"null is a value", `{"a":null}`, `{}`, false},
		"Nesting": {"names count where they are", `{"a":{"b":1}}`, `{"a":{},"b":1}`, false},
	} {
		a, err := review.Canonical([]byte(c.a))
		require.NoError(t, err, name)
		b, err := review.Canonical([]byte(c.b))
		require.NoError(t, err, name)
		require.Equal(t, c.equal, string(a) == string(b), c.reason)
	}
	_, err := review.Canonical([]byte(`{"a"`))
	require.Error(t, err)
}

func TestCheckTokens(t *testing.T) {
	t.Parallel()
	require.NoError(t, review.CheckTokens([]byte(`{"a":[1,2]}`), 7))
	require.ErrorContains(t, review.CheckTokens([]byte(`{"a":[1,2]}`), 6), "more than 6 names, values and brackets")
	deep := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	require.NoError(t, review.CheckTokens(deep(500), 2000))
	require.ErrorContains(t, review.CheckTokens(deep(501), 2000), "nested more than 500 levels deep")
	require.Error(t, review.CheckTokens([]byte(`[1`), 10))
}
