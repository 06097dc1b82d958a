package build_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/build"
)

const (
	commit = "0123456789abcdef0123456789abcdef01234567"
	digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
)

func imageBuild() build.Request {
	return build.Request{Order: build.Order{Service: "111", Repository: "https://git.test/order.git", Branch: "main",
		Image:          "registry.test:5000/shop/order:{{commit}}",
		TemplateSHA256: "t", DeadlineSeconds: 600}, Namespace: "shop", Commit: commit, By: "task/a/1-111"}
}

func packageBuild() build.Request {
	r := imageBuild()
	r.Image, r.Package = "", "https://packages.test/order-{{commit}}.zip"
	return r
}

func TestParseYield(t *testing.T) {
	t.Parallel()
	image, pkg := imageBuild(), packageBuild()
	const repository = "registry.test:5000/shop/order"
	const url = "https://packages.test/order-" + commit + ".zip"
	for name, tc := range map[string]struct {
		reason, message string
		of              build.Request
		want            build.Yield
		errText         string
	}{
		"Image": {"the pattern's repository and a digest", repository + "@sha256:" + digest, image,
			build.Yield{Image: repository + "@sha256:" + digest}, ""},
		"Tagged": {"the pattern's tag is allowed; only the digest counts",
			repository + ":" + commit + "@sha256:" + digest + "\n", image,
			build.Yield{Image: repository + "@sha256:" + digest}, ""},
		"LineBreak": {"echo ends lines", repository + "@sha256:" + digest + "\r\n", image,
			build.Yield{Image: repository + "@sha256:" + digest}, ""},
		"Package": {"the pattern's URL and a digest", url + " sha256:" + digest + "\n", pkg,
			build.Yield{Package: url, SHA256: digest}, ""},
		"Nothing": {"the error for an empty result explains the format", "", image, build.Yield{},
			"it wrote no result: its first container has to write " + repository + ":" + commit + "@sha256:…"},
		"NoDigest": {"a tag can be overwritten", repository + ":" + commit, image, build.Yield{},
			", not " + repository},
		"Repository": {"another repository is not what the catalogue names", "evil.test/order@sha256:" + digest,
			image, build.Yield{}, `its result names the image "evil.test/order", but build.image`},
		"Tag": {"another tag is another build", repository + ":latest@sha256:" + digest, image, build.Yield{},
			"its result names the image"},
		"Registry": {"a longer name is another name", repository + "s@sha256:" + digest, image, build.Yield{},
			"its result names the image"},
		"Capitals": {"digests are written in lower case", repository + "@sha256:" + strings.ToUpper(digest), image,
			build.Yield{}, ", not "},
		"Short": {"a part of a digest pins nothing", repository + "@sha256:" + digest[:12], image, build.Yield{},
			", not "},
		"Two": {"two lines are two results",
			repository + "@sha256:" + digest + "\n" + repository + "@sha256:" + digest, image, build.Yield{},
			"is not one line"},
		"Blank": {"nothing is trimmed away", " " + repository + "@sha256:" + digest, image, build.Yield{},
			"its result names the image"},
		"Other": {"a package is not an image", url + " sha256:" + digest, image, build.Yield{}, ", not "},
		"PackageURL": {"another URL is not what the catalogue names", "https://evil.test/order.zip sha256:" + digest,
			pkg, build.Yield{}, "its result names the package"},
		"PackageImage": {"an image is not a package", repository + "@sha256:" + digest, pkg, build.Yield{}, ", not "},
		"Log":          {"the end of a log is not a result", "Step 3/4\nok", pkg, build.Yield{}, "is not one line"},
		"Long": {"a truncated message is not a result", url + strings.Repeat("x", 4096) + " sha256:" + digest,
			pkg, build.Yield{}, "is not one line"},
		"Escape": {"no terminal escapes", "\x1b[2J@sha256:" + digest, image, build.Yield{}, "is not one line"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := tc.of.ParseYield(tc.message)
			if tc.errText != "" {
				require.ErrorContains(t, err, tc.errText, tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
			require.Equal(t, tc.want, got, tc.reason)
			again, err := tc.of.ParseYield(got.String())
			require.NoError(t, err, "the recorded result can be read")
			require.Equal(t, got, again)
		})
	}
}

// For every output of a build, an accepted result is what the catalogue names, with a complete digest.
func FuzzParseYield(f *testing.F) {
	for _, seed := range []string{"", "registry.test:5000/shop/order@sha256:" + digest,
		"https://packages.test/order-" + commit + ".zip sha256:" + digest + "\n", "@sha256:", " sha256:",
		"registry.test:5000/shop/order:" + commit + "@sha256:" + digest} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, message string) {
		if yield, err := imageBuild().ParseYield(message); err == nil {
			require.Len(t, yield.Image, len("registry.test:5000/shop/order@sha256:")+64)
			require.True(t, strings.HasPrefix(yield.Image, "registry.test:5000/shop/order@sha256:"))
			require.Empty(t, yield.Package)
		}
		if yield, err := packageBuild().ParseYield(message); err == nil {
			require.Equal(t, build.Yield{Package: "https://packages.test/order-" + commit + ".zip",
				SHA256: yield.SHA256}, yield)
			require.Len(t, yield.SHA256, 64)
		}
	})
}
