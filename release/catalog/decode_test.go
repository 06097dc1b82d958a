package catalog

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/strictyaml"
)

const wholeEntry = `displayName: order service
workloads:
- party: alice
  namespace: shop
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: order}
  labels: [label1, blue_green.1]
  replicas: 3
- namespace: shop
  workloadRef: {apiVersion: apps/v1, kind: StatefulSet, name: order.db}
- namespace: shop
  workloadRef:
    apiVersion: apps/v1
    kind: DaemonSet
    name: order-agent
deadlineSeconds: 15m
package: {container: app, mountPath: /app, credentials: registry-login}
build:
  jobTemplate:
    metadata: {labels: {app: build}}
    spec:
      backoffLimit: 0
      template:
        spec:
          restartPolicy: Never
          containers:
          - name: build
            image: golang:1.26
            args: [make, image]
            resources: {limits: {cpu: "2", memory: 1Gi}}
  image: "registry.local:5000/shop/app:{{commit}}"
...
`

func TestDecodeWholeEntry(t *testing.T) {
	t.Parallel()
	s, errs := Decode([]byte(wholeEntry))
	require.NoError(t, errs.Err())
	require.Equal(t, "order service", s.DisplayName)
	require.Len(t, s.Workloads, 3)
	three := int32(3)
	require.Equal(t, Workload{
		Party: "alice", Namespace: "shop", WorkloadRef: WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment",
			Name: "order"},
		Labels: []string{"label1", "blue_green.1"}, Replicas: &three,
	}, s.Workloads[0])
	require.Equal(t, int64(900), s.Deadline())
	require.Equal(t, &Package{Container: "app", MountPath: "/app", Credentials: "registry-login"}, s.Package)
	require.Equal(t, "registry.local:5000/shop/app:{{commit}}", s.Build.Image)
	var template map[string]any
	require.NoError(t, json.Unmarshal(s.Build.JobTemplate.Raw, &template))
	require.Contains(t, template, "metadata", "the template is kept completely")

	raw, err := json.Marshal(s)
	require.NoError(t, err)
	again, errs := Decode(raw)
	require.NoError(t, errs.Err(), "an entry encoded as JSON can be decoded")
	require.Equal(t, s.Workloads, again.Workloads)
	require.JSONEq(t, string(s.Build.JobTemplate.Raw), string(again.Build.JobTemplate.Raw))
}

func TestDecodeSmallestEntry(t *testing.T) {
	t.Parallel()
	s, errs := Decode([]byte("workloads: [{namespace: shop, workloadRef: {apiVersion: apps/v1, kind: Deployment, " +
		"name: a}}]"))
	require.NoError(t, errs.Err())
	require.Equal(t, int64(defaultDeadlineSeconds), s.Deadline())
	require.Equal(t, DefaultParty, s.Workloads[0].PartyOrDefault())
	require.Nil(t, s.Workloads[0].Replicas)
	require.Nil(t, s.Package)
	require.Nil(t, s.Build)
}

// change returns the smallest entry with one part replaced.
func change(old, with string) string {
	const entry = `workloads:
- namespace: shop
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: a}
`
	return strings.Replace(entry, old, with, 1)
}

func TestDecode_Rejects(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, text, field string
		line                int
		contains            string
	}{
		"NoWorkloads": {"a service consists of workloads", "displayName: x", "workloads", 1,
			"is required: a service has at least one"},
		"EmptyWorkloads": {"an empty list is none", "displayName: x\nworkloads: []", "workloads", 2, "is required"},
		"WorkloadsNoList": {"one workload is still a list", "workloads: {namespace: shop}", "workloads", 1,
			"must be a list, not a mapping"},
		"MisspeltKey": {"a misspelt key would be ignored", change("namespace", "nameSpace"),
			"workloads[0].nameSpace", 2, `did you mean "namespace"? Keys are case-sensitive`},
		"StrategyList": {"a strategy is a mapping", "strategy: [canary]\n" + change("", ""), "strategy", 1,
			"must be a mapping"},
		"PolicyAlone": {"it would mean nothing", "policy: {onFailure: pause}\n" + change("", ""), "policy", 1,
			"belongs to a strategy"},
		"StrategyNames": {
			"one name has one Rollout", "strategy: {canary: {}}\n" + change("", "") +
				"- namespace: shop\n  workloadRef: {apiVersion: apps/v1, kind: StatefulSet, name: a}\n",
			"workloads[1]", 5, "one name has one Rollout",
		},
		"NoNamespace": {"no default is guessed", change("namespace: shop\n  ", ""), "workloads[0].namespace", 2,
			"is required"},
		"BadNamespace": {"Kubernetes would refuse it", change("shop", "Shop"), "workloads[0].namespace", 2,
			`"Shop" is not a legal name`},
		"NumberNamespace": {"a number is not a name here", change("shop", "12"), "workloads[0].namespace", 2,
			"put it in quotes"},
		"NoRef": {"no object", "workloads:\n- namespace: shop\n", "workloads[0].workloadRef", 2,
			"is required: name the object"},
		"HalfRef": {"half an object", change(", name: a", ""), "workloads[0].workloadRef.name", 3,
			"is required"},
		"NoKind": {"half an object", change("kind: Deployment, ", ""), "workloads[0].workloadRef.kind", 3,
			"Deployment, StatefulSet and DaemonSet can be released"},
		"NoAPIVersion": {"half an object", change("apiVersion: apps/v1, ", ""),
			"workloads[0].workloadRef.apiVersion", 3, "is required: write apps/v1"},
		"BadName": {"Kubernetes would refuse it", change("name: a", "name: a_b"),
			"workloads[0].workloadRef.name", 3, "is not a legal name"},
		"KindCase": {"kinds are case-sensitive", change("Deployment", "deployment"),
			"workloads[0].workloadRef.kind", 3, "did you mean Deployment?"},
		"OtherKind": {"a kind without pods of its own", change("Deployment", "Service"),
			"workloads[0].workloadRef.kind", 3, `"Service" of apps/v1 cannot be released`},
		"OtherAPI": {"not built", change("apps/v1, kind: Deployment", "apps.kruise.io/v1alpha1, kind: CloneSet"),
			"workloads[0].workloadRef.kind", 3, "is not available yet"},
		"OldAPI": {"a removed API", change("apps/v1", "extensions/v1beta1"), "workloads[0].workloadRef.kind",
			3, "write apiVersion: apps/v1"},
		"Party": {"not a party's name", change("- namespace", "- party: Alice\n  namespace"),
			"workloads[0].party", 2, `"Alice" is not a legal name`},
		"LongParty": {"too long for a name",
			change("- namespace", "- party: "+strings.Repeat("a", 64)+"\n  namespace"), "workloads[0].party", 2,
			"at most 63"},
		"Label": {"a comma separates labels in a plan",
			change("- namespace", "- labels: [\"a,b\"]\n  namespace"), "workloads[0].labels[0]", 2,
			"is not a legal label"},
		"RepeatedLabel": {"one of them may be a misspelt other one",
			change("- namespace", "- labels: [a, a]\n  namespace"), "workloads[0].labels[1]", 2, "a second time"},
		"LabelsText": {"a text is not a list", change("- namespace", "- labels: a\n  namespace"),
			"workloads[0].labels", 2, "must be a list"},
		"NoReplicas": {"START needs at least one replica", change("- namespace", "- replicas: 0\n  namespace"),
			"workloads[0].replicas", 2, "must be from 1"},
		"TooManyReplicas": {"32 bits", change("- namespace", "- replicas: 3000000000\n  namespace"),
			"workloads[0].replicas", 2, "must be from 1"},
		"DaemonReplicas": {
			"a DaemonSet has no size", "workloads:\n- namespace: shop\n  replicas: 2\n  workloadRef: {apiVersion: " +
				"apps/v1, kind: DaemonSet, name: a}\n",
			"workloads[0].replicas", 3, "a DaemonSet has no size",
		},
		"Twice": {
			"one service would change the object twice",
			change("", "") + "- party: default\n  namespace: shop\n  workloadRef: {apiVersion: apps/v1, kind: " +
				"Deployment, name: a}\n",
			"workloads[1]", 4, "is Deployment shop/a again, which is already workloads[0]",
		},
		"Deadline": {"a deadline of zero", "deadlineSeconds: 0\n" + change("", ""), "deadlineSeconds", 1,
			"must be from 1 to 86400 seconds, not 0"},
		"LongDeadline": {"more than a day", "deadlineSeconds: 86401\n" + change("", ""), "deadlineSeconds", 1,
			"must be from 1 to 86400"},
		"PackageEmpty": {"a missing path", "package: {container: app}\n" + change("", ""), "package.mountPath", 1,
			"is required"},
		"PackageName": {"not a container's name", "package: {container: App, mountPath: /a}\n" + change("", ""),
			"package.container", 1, "is not a legal name"},
		"PackageRelative": {"a mount path is absolute", "package: {container: app, mountPath: app}\n" + change("", ""),
			"package.mountPath", 1, "must be an absolute path"},
		"PackageRoot": {"it would hide the image", "package: {container: app, mountPath: /}\n" + change("", ""),
			"package.mountPath", 1, "must not be the root"},
		"PackageUp": {"it leaves the folder",
			"package: {container: app, mountPath: /app/../etc}\n" + change("", ""), "package.mountPath", 1,
			"plain path"},
		"PackageFile": {"an unpacked package is not one file",
			"package: {container: app, mountPath: /a, file: a.jar}\n" + change("", ""), "package.file", 1,
			"add unpack: false"},
		"PackagePath": {"a file stays in its folder",
			"package: {container: app, mountPath: /a, unpack: false, file: ../a.jar}\n" + change("", ""),
			"package.file", 1, "is not the name of a file"},
		"PackageUnpack": {"yes or no", "package: {container: app, mountPath: /a, unpack: perhaps}\n" + change("", ""),
			"package.unpack", 1, "true or false"},
		"PackageSecret": {"not a Secret's name",
			"package: {container: app, mountPath: /a, credentials: a b}\n" + change("", ""), "package.credentials", 1,
			"is not a legal name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, errs := Decode([]byte(test.text))
			require.NotEmpty(t, errs, test.reason)
			for _, one := range errs {
				if one.Field == test.field && strings.Contains(one.Reason, test.contains) {
					require.Equal(t, test.line, one.Line, test.reason)
					return
				}
			}
			require.Failf(t, "refused, but not for the right reason", "%s: want %s: %s; got %v", test.reason,
				test.field, test.contains, errs)
		})
	}
}

func TestDecode_ReportsAllErrorsAtOnce(t *testing.T) {
	t.Parallel()
	_, errs := Decode([]byte(`displayname: x
workloads:
- nmespace: shop
  workloadRef: {apiVersion: apps/v1, kind: Pod, name: A}
  replicas: many
deadlineSeconds: ten minutes
`))
	var got []string
	for _, one := range errs {
		got = append(got, one.Field)
	}
	require.Equal(t, []string{
		"displayname", "workloads[0].nmespace", "workloads[0].namespace", "workloads[0].workloadRef.kind",
		"workloads[0].workloadRef.name",
		"workloads[0].replicas", "deadlineSeconds",
	}, got, "every error, in the order of the lines")
}

func TestValidateWithoutText(t *testing.T) {
	t.Parallel()
	none := int32(0)
	errs := Service{
		DeadlineSeconds: -1,
		Workloads: []Workload{{
			Namespace: "shop", WorkloadRef: WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "a"},
			Replicas: &none, Labels: []string{""},
		}},
	}.Validate()
	require.Len(t, errs, 3)
	require.Equal(t, []strictyaml.FieldError{
		{Field: "workloads[0].labels[0]", Reason: `is empty: a label is made of letters, digits, "-", "_" and "."`},
		{Field: "workloads[0].replicas", Reason: "must be at least 1, not 0: it is what START restores"},
		{Field: "deadlineSeconds", Reason: "must be from 1 to 86400, not -1"},
	}, []strictyaml.FieldError(errs), "an object written by kubectl is checked by the same rules, without lines")
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	a := Workload{Namespace: "shop", WorkloadRef: WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "a"}}
	same, other := a, a
	same.Party = DefaultParty
	other.Party = "alice"
	require.Equal(t, a.Identity(), same.Identity(), "no party is the party default")
	require.NotEqual(t, a.Identity(), other.Identity(), "another party has another cluster")
	kind := a
	kind.WorkloadRef.Kind = "StatefulSet"
	require.NotEqual(t, a.Identity(), kind.Identity())
}
