package source_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"slipway.io/slipway/release/source"
)

const digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

func order() source.Package {
	return source.Package{URL: "https://packages.test/order.zip", Container: "app", MountPath: "/app", SHA256: digest,
		Bytes: 3 << 20}
}

var fetcher = source.Fetcher{Image: "registry.test/slipway:v1", Store: "http://packages.shop:8085",
	Allow:  []string{"public", "10.0.0.0/8"},
	Limits: source.Limits{Bytes: 100, UnpackedBytes: 200, Entries: 3}}

// template decodes a pod template as the API server returns it.
func template(t require.TestingT, text string) map[string]any {
	var out map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &out))
	return out
}

// typed returns the template as Kubernetes decodes it.
func typed(t require.TestingT, in map[string]any) corev1.PodTemplateSpec {
	raw, err := json.Marshal(in)
	require.NoError(t, err)
	var out corev1.PodTemplateSpec
	require.NoError(t, json.Unmarshal(raw, &out))
	return out
}

const plain = `{"metadata":{"labels":{"app":"order"}},"spec":{
	"initContainers":[{"name":"migrate","image":"m"}],
	"volumes":[{"name":"cache","emptyDir":{}}],
	"containers":[
		{"name":"sidecar","image":"s"},
		{"name":"app","image":"a","resources":{"requests":{"cpu":"1"}},"securityContext":{"runAsUser":1000,"privileged":true},
		 "volumeMounts":[{"name":"cache","mountPath":"/cache"}]}]}}`

func TestPut_PinsPodsToDigest(t *testing.T) {
	t.Parallel()
	in := template(t, plain)
	require.Empty(t, order().UnfitReason(in))
	require.False(t, order().PresentIn(in))
	order().Put(in, fetcher, "https://packages.test/order.zip?signature=$(HOME)")
	require.True(t, order().PresentIn(in))

	pod := typed(t, in)
	require.Equal(t, order().Marker(), pod.Annotations[source.AnnotationDeployed])
	require.Equal(t, digest, source.PackageDigest(pod.Annotations))
	require.Equal(t, "order", pod.Labels["app"])
	fetch := pod.Spec.InitContainers[0]
	require.Equal(t, "migrate", pod.Spec.InitContainers[1].Name,
		"other init containers stay, after the package is there")
	require.Equal(t, "registry.test/slipway:v1", fetch.Image)
	require.Equal(t, []string{"fetch", "--sha256", digest, "--to", "/slipway-package", "--max-bytes", "100",
		"--max-unpacked-bytes", "200",
		"--max-entries", "3", "--trusted", "http://packages.shop:8085", "--allow", "public", "--allow", "10.0.0.0/8"},
		fetch.Args)
	require.Equal(t, "http://packages.shop:8085/packages/sha256/"+digest+
		"\nhttps://packages.test/order.zip?signature=$$(HOME)", fetch.Env[0].Value,
		"the store first, then the source; Kubernetes must not expand what looks like a variable")
	require.Equal(t, int64(1000), *fetch.SecurityContext.RunAsUser, "it runs as the user that reads the files")
	require.Nil(t, fetch.SecurityContext.Privileged, "it gets no further rights")
	require.False(t, *fetch.SecurityContext.AllowPrivilegeEscalation)
	require.Equal(t, "1", fetch.Resources.Requests.Cpu().String(),
		"it needs no more quota than the container that gets the package")
	app := pod.Spec.Containers[1]
	require.Equal(t, []corev1.VolumeMount{{Name: "cache", MountPath: "/cache"},
		{Name: source.VolumePackage, MountPath: "/app", SubPath: source.FolderContent}}, app.VolumeMounts)
	require.Empty(t, pod.Spec.Containers[0].VolumeMounts)
}

func TestPut_GivesPodsTheCAOfTheStore(t *testing.T) {
	t.Parallel()
	plainly, trusting, elsewhere := template(t, plain), template(t, plain), template(t, plain)
	order().Put(plainly, fetcher, "https://packages.test/order.zip")
	with := fetcher
	with.StoreCA = "-----BEGIN CERTIFICATE-----\n"
	order().Put(trusting, with, "https://packages.test/order.zip")
	args := typed(t, trusting).Spec.InitContainers[0].Args
	at := slices.Index(args, "--trusted-ca")
	require.Positive(t, at)
	require.Equal(t, with.StoreCA, args[at+1])
	require.NotContains(t, typed(t, plainly).Spec.InitContainers[0].Args, "--trusted-ca")
	require.True(t, order().PresentIn(plainly), "another CA is no other package: pods that have it are not replaced")
	with.Store = ""
	order().Put(elsewhere, with, "https://packages.test/order.zip")
	require.NotContains(t, typed(t, elsewhere).Spec.InitContainers[0].Args, "--trusted-ca", "there is no store")
}

func TestPutReplacesAnEarlierPackage(t *testing.T) {
	t.Parallel()
	in := template(t, plain)
	before := order()
	before.Container, before.Credentials = "sidecar", "opens"
	before.Put(in, fetcher, before.URL)
	require.Len(t, typed(t, in).Spec.Volumes, 3, "a Secret with credentials is mounted")
	after := order()
	after.MountPath, after.File = "/srv", "order.jar"
	after.Put(in, source.Fetcher{Image: "x"}, after.URL)
	require.True(t, after.PresentIn(in))
	require.False(t, before.PresentIn(in))
	pod := typed(t, in)
	require.Len(t, pod.Spec.InitContainers, 2)
	require.Empty(t, pod.Spec.Containers[0].VolumeMounts, "the previous container has no mount of it any more")
	require.Len(t, pod.Spec.Volumes, 2)
	require.Equal(t, "https://packages.test/order.zip", pod.Spec.InitContainers[0].Env[0].Value,
		"without a store, from the source")
	require.Contains(t, pod.Spec.InitContainers[0].Args, "order.jar")
}

func TestPackagePresentIn(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(template map[string]any)
		want   bool
	}{
		"Untouched": {"nothing changed", func(map[string]any) {}, true},
		"OtherImage": {"the image that fetches is not what is deployed: a newer Slipway must not roll pods",
			func(template map[string]any) {
				init := template["spec"].(map[string]any)["initContainers"].([]any)[0].(map[string]any)
				init["image"] = "registry.test/slipway:v2"
			}, true},
		"OtherURL": {"nor is the address: the same bytes are the same package", func(template map[string]any) {
			template["spec"].(map[string]any)["initContainers"].([]any)[0].(map[string]any)["env"] = []any{}
		}, true},
		"NoFetch": {"another client removed the init container", func(template map[string]any) {
			delete(template["spec"].(map[string]any), "initContainers")
		}, false},
		"NoMount": {"another client removed the mount", func(template map[string]any) {
			delete(template["spec"].(map[string]any)["containers"].([]any)[1].(map[string]any), "volumeMounts")
		}, false},
		"NoMark": {"another client replaced the template", func(template map[string]any) {
			delete(template, "metadata")
		}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := template(t, plain)
			order().Put(in, fetcher, order().URL)
			tc.change(in)
			require.Equal(t, tc.want, order().PresentIn(in), tc.reason)
		})
	}
}

func TestUnfit(t *testing.T) {
	t.Parallel()
	missing, taken := order(), order()
	missing.Container = "ap"
	taken.MountPath = "/cache"
	require.Contains(t, missing.UnfitReason(template(t, plain)),
		"it has no container ap, which the catalogue's package.container names: it has sidecar, app")
	require.Contains(t, taken.UnfitReason(template(t, plain)), "its container app mounts volume cache at /cache")
	in := template(t, plain)
	order().Put(in, fetcher, order().URL)
	require.Empty(t, order().UnfitReason(in), "its own mount is no conflict")
}

// Regardless of earlier packages, the template equals the one that the last package makes of a template without any.
func TestPut_DoesNotDependOnEarlierPackages(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) source.Package {
			p := order()
			p.Container = rapid.SampledFrom([]string{"app", "sidecar"}).Draw(t, label+" container")
			p.MountPath = rapid.SampledFrom([]string{"/app", "/srv/x"}).Draw(t, label+" mount")
			p.Credentials = rapid.SampledFrom([]string{"", "opens"}).Draw(t, label+" credentials")
			p.File = rapid.SampledFrom([]string{"", "a.jar"}).Draw(t, label+" file")
			return p
		}
		in, fresh := template(t, plain), template(t, plain)
		for range rapid.IntRange(0, 3).Draw(t, "before") {
			draw("earlier").Put(in, fetcher, "https://packages.test/x")
		}
		last := draw("last")
		last.Put(in, fetcher, last.URL)
		last.Put(fresh, fetcher, last.URL)
		require.Equal(t, typed(t, fresh), typed(t, in))
	})
}

func TestNamesOfPackages(t *testing.T) {
	t.Parallel()
	require.Equal(t, "app.jar", source.FileOf("app.jar", "https://x/y.jar"), "the catalogue's name takes precedence")
	require.Equal(t, "y.jar", source.FileOf("", "https://x/d/y.jar?z=1"))
	require.Empty(t, source.FileOf("", "https://x/"), "the root names no file")
	require.Empty(t, source.FileOf("", "https://x/%2e%2e"), "nor does the parent folder")
	url, hidden := source.HideQuery("https://x/y?token=1")
	require.Equal(t, "https://x/y", url)
	require.True(t, hidden)
	for size, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 5 << 30: "5.0 GiB"} {
		require.Equal(t, want, source.Size(size))
	}
	other := order()
	other.MountPath = "/elsewhere"
	require.NotEqual(t, order().Marker(), other.Marker(), "the same bytes at another path are not the same pods")
	require.LessOrEqual(t, len(order().Marker()), 100)
}
