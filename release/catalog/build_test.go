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
		"Image":           {"a build that pushes an image", goodTemplate, "registry/app:{{commit}}", "", "", ""},
		"Package":         {"a build that makes a package", goodTemplate, "", "https://files/app-{{commit}}.zip", "", ""},
		"InTheName":       {"the commit may be anywhere in the name", goodTemplate, "registry/{{commit}}/app:1", "", "", ""},
		"Neither":         {"a build for nothing", goodTemplate, "", "", "build", "yields nothing"},
		"Both":            {"which of them?", goodTemplate, "a:{{commit}}", "http://f/{{commit}}", "build", "names both"},
		"ImageNoCommit":   {"every commit would overwrite the last", goodTemplate, "registry/app:latest", "", "build.image", "must hold {{commit}}"},
		"PackageNoCommit": {"every commit would overwrite the last", goodTemplate, "", "https://files/app.zip", "build.package", "must hold {{commit}}"},
		"Misspelt":        {"a placeholder that is never filled", goodTemplate, "app:{{comit}}", "", "build.image", `has the placeholder "{{comit}}"`},
		"Second":          {"a second placeholder that is never filled", goodTemplate, "app-{{branch}}:{{commit}}", "", "build.image", "{{branch}}"},
		"Brace":           {"half a placeholder", goodTemplate, "app:{{commit}}-{commit}", "", "build.image", "brace that belongs to no placeholder"},
		"NoImageName":     {"no registry takes it", goodTemplate, "Registry/App:{{commit}}", "", "build.image", "is not the name of an image"},
		"NoURL":           {"nothing fetches it", goodTemplate, "", "files/app-{{commit}}.zip", "build.package", "is not an absolute URL"},
		"FTP":             {"nothing fetches it", goodTemplate, "", "ftp://files/app-{{commit}}.zip", "build.package", "http:// or https://"},
		"NoTemplate":      {"nothing compiles", "", "app:{{commit}}", "", "build.jobTemplate", "is required"},
		"NullTemplate":    {"nothing compiles", "null", "app:{{commit}}", "", "build.jobTemplate", "is required"},
		"NoContainer":     {"nothing runs", `{"spec":{"template":{"spec":{"containers":[]}}}}`, "app:{{commit}}", "", "build.jobTemplate", "has no container"},
		"PodTemplate":     {"a pod template is no template of a Job", `{"spec":{"containers":[]}}`, "app:{{commit}}", "", "build.jobTemplate", `unknown field "spec.containers"`},
		"WholeJob":        {"neither is a Job", `{"kind":"Job",` + goodTemplate[1:], "app:{{commit}}", "", "build.jobTemplate", `unknown field "kind"`},
		"Nameless": {
			"Kubernetes would refuse it", `{"spec":{"template":{"spec":{"containers":[{"name":"build"}]}}}}`, "app:{{commit}}", "",
			"build.jobTemplate", "without name or image",
		},
		"MisspeltField": {"a misspelt field would be dropped", strings.Replace(goodTemplate, "image", "imge", 1), "app:{{commit}}", "", "build.jobTemplate", `imge"`},
		"WrongType":     {"no template at all", `{"spec":3}`, "app:{{commit}}", "", "build.jobTemplate", "is not the template of a Job"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Service{
				Workloads: []Workload{{Namespace: "shop", WorkloadRef: WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "a"}}},
				Build:     &Build{JobTemplate: apiextensionsv1.JSON{Raw: []byte(test.template)}, Image: test.image, Package: test.pkg},
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
