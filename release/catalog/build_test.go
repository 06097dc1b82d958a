package catalog

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

const goodTemplate = `{"spec":{"template":{"spec":{"containers":[{"name":"build","image":"golang"}]}}}}`

func TestBuild(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, template, image, pkg string
		field, contains              string
	}{
		"Image": {"a build that pushes an image", goodTemplate, "registry/app:{{commit}}", "", "", ""},
		"Package": {"a build that makes a package", goodTemplate, "", "https://files/app-{{commit}}.zip", "",
			""},
		"InTheName": {"the commit may be anywhere in the name", goodTemplate, "registry/{{commit}}/app:1", "", "",
			""},
		"Neither": {"a build without a result", goodTemplate, "", "", "build", "yields nothing"},
		"Both": {"which of them?", goodTemplate, "a:{{commit}}", "http://f/{{commit}}", "build",
			"names both"},
		"ImageNoCommit": {"every commit would overwrite the last", goodTemplate, "registry/app:latest", "",
			"build.image", "must contain {{commit}}"},
		"PackageNoCommit": {"every commit would overwrite the last", goodTemplate, "", "https://files/app.zip",
			"build.package", "must contain {{commit}}"},
		"Misspelt": {"a placeholder that is never filled", goodTemplate, "app:{{comit}}", "", "build.image",
			`has the unknown placeholder "{{comit}}"`},
		"Second": {"a second placeholder that is never filled", goodTemplate, "app-{{branch}}:{{commit}}", "",
			"build.image", "{{branch}}"},
		"Brace": {"half a placeholder", goodTemplate, "app:{{commit}}-{commit}", "", "build.image",
			"brace that belongs to no placeholder"},
		"NoImageName": {"no registry accepts it", goodTemplate, "Registry/App:{{commit}}", "", "build.image",
			"is not the name of an image"},
		"NoURL": {"it cannot be fetched", goodTemplate, "", "files/app-{{commit}}.zip", "build.package",
			"is not an absolute URL"},
		"FTP": {"it cannot be fetched", goodTemplate, "", "ftp://files/app-{{commit}}.zip", "build.package",
			"http:// or https://"},
		"NoTemplate":   {"nothing compiles", "", "app:{{commit}}", "", "build.jobTemplate", "is required"},
		"NullTemplate": {"nothing compiles", "null", "app:{{commit}}", "", "build.jobTemplate", "is required"},
		"NoContainer": {"nothing runs", `{"spec":{"template":{"spec":{"containers":[]}}}}`, "app:{{commit}}", "",
			"build.jobTemplate", "has no container"},
		"PodTemplate": {"a pod template is not a Job template", `{"spec":{"containers":[]}}`, "app:{{commit}}", "",
			"build.jobTemplate", `unknown field "spec.containers"`},
		"WholeJob": {"nor is a Job", `{"kind":"Job",` + goodTemplate[1:], "app:{{commit}}", "",
			"build.jobTemplate", `unknown field "kind"`},
		"Nameless": {
			"Kubernetes would refuse it", `{"spec":{"template":{"spec":{"containers":[{"name":"build"}]}}}}`,
			"app:{{commit}}", "",
			"build.jobTemplate", "without name or image",
		},
		"MisspeltField": {"a misspelt field would be dropped", strings.Replace(goodTemplate, "image", "imge", 1),
			"app:{{commit}}", "", "build.jobTemplate", `imge"`},
		"Pinned": {"only the build knows the digest", goodTemplate,
			"app:{{commit}}@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "", "build.image",
			"names a digest"},
		"PackageQuery": {"everyone who can read a task sees the URL", goodTemplate, "",
			"https://files/app-{{commit}}.zip?sig=1", "build.package", "has a query"},
		"Backoff": {"a build that fails is not repeated",
			`{"spec":{"backoffLimit":6,` + goodTemplate[len(`{"spec":{`):], "app:{{commit}}", "", "build.jobTemplate",
			"has spec.backoffLimit: leave it out"},
		"BackoffNone": {"values that Slipway sets anyway are allowed",
			`{"spec":{"backoffLimit":0,"completions":1,"parallelism":1,"activeDeadlineSeconds":9,` +
				goodTemplate[len(`{"spec":{`):], "app:{{commit}}", "", "", ""},
		"TTL": {"the Job stores the result",
			`{"spec":{"ttlSecondsAfterFinished":60,` + goodTemplate[len(`{"spec":{`):], "app:{{commit}}", "",
			"build.jobTemplate", "has spec.ttlSecondsAfterFinished"},
		"Parallel": {"a build runs in one pod", `{"spec":{"parallelism":2,` + goodTemplate[len(`{"spec":{`):],
			"app:{{commit}}", "", "build.jobTemplate", "has spec.parallelism"},
		"Policy": {"nor repeated by a pod failure policy",
			`{"spec":{"podFailurePolicy":{"rules":[]},` + goodTemplate[len(`{"spec":{`):], "app:{{commit}}", "",
			"build.jobTemplate", "has spec.podFailurePolicy"},
		"OnFailure": {"nor by the kubelet", strings.Replace(goodTemplate, `{"containers"`,
			`{"restartPolicy":"OnFailure","containers"`, 1), "app:{{commit}}", "", "build.jobTemplate",
			"has spec.template.spec.restartPolicy"},
		"Never": {"this is what Slipway sets",
			strings.Replace(goodTemplate, `{"containers"`, `{"restartPolicy":"Never","containers"`, 1),
			"app:{{commit}}", "", "", ""},
		"Reserved": {"Slipway sets its own variables",
			strings.Replace(goodTemplate, `"image":"golang"`,
				`"image":"golang","env":[{"name":"SLIPWAY_GIT_COMMIT","value":"x"}]`, 1), "app:{{commit}}", "",
			"build.jobTemplate", "sets SLIPWAY_GIT_COMMIT in container build"},
		"WrongType": {"no template at all", `{"spec":3}`, "app:{{commit}}", "", "build.jobTemplate",
			"is not the template of a Job"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Service{
				Workloads: []Workload{{Namespace: "shop",
					WorkloadRef: WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "a"}}},
				Build: &Build{JobTemplate: apiextensionsv1.JSON{Raw: []byte(test.template)}, Image: test.image,
					Package: test.pkg},
			}
			errs := s.Validate()
			if test.contains == "" {
				require.Empty(t, errs, test.reason)
				return
			}
			require.NotEmpty(t, errs, test.reason)
			require.Equal(t, test.field, errs[0].Field, test.reason)
			require.Contains(t, errs.Error(), test.contains, test.reason)
		})
	}
}

// The other fields of the build are validated by the rules of what they name.
func TestBuildFields(t *testing.T) {
	t.Parallel()
	const workloads = "workloads: [{namespace: shop, workloadRef: {apiVersion: apps/v1, kind: Deployment, name: " +
		"a}}]\ndeadlineSeconds: 60\n"
	s, errs := Decode([]byte(workloads + "build: {jobTemplate: " + goodTemplate +
		", image: 'app:{{commit}}', container: app, credentials: git, deadlineSeconds: 1800}"))
	require.NoError(t, errs.Err())
	require.Equal(t, "app", s.Build.Container)
	require.Equal(t, "git", s.Build.Credentials)
	require.EqualValues(t, 1800, s.BuildDeadline())
	s.Build.DeadlineSeconds = 0
	require.EqualValues(t, 60, s.BuildDeadline(), "by default a build may take as long as an operation")
	require.Equal(t, "app:abc", FillCommit(s.Build.Image, "abc"))
	for want, fields := range map[string]string{
		"build.container: \"App\" is not a legal name":         "image: 'a:{{commit}}', container: App",
		"build.container: is for a build that yields an image": "package: 'https://f/{{commit}}.zip', container: app",
		"build.credentials: \"My Secret\" is not a legal name": "image: 'a:{{commit}}', credentials: My Secret",
		"build.deadlineSeconds: ":                              "image: 'a:{{commit}}', deadlineSeconds: 86401",
		"build.secret: unknown key":                            "image: 'a:{{commit}}', secret: git",
	} {
		_, errs := Decode([]byte(workloads + "build: {jobTemplate: " + goodTemplate + ", " + fields + "}"))
		require.ErrorContains(t, errs.Err(), want)
	}
}
