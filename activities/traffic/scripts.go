package traffic

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/activities/traffic/scriptbox"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/kruise/reference"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/release/rollout/traffic/sandbox"
)

// scriptRefusal is a script's refusal of a step. field is relative to the step.
type scriptRefusal struct {
	field string
	err   error
}

func (r *scriptRefusal) Error() string { return r.err.Error() }

func (r *scriptRefusal) Unwrap() error { return r.err }

// evaluate runs a script, the user's or else the built-in one. It returns the script's output and the script. It fails
// with failure.Refused if there is no script, if it fails, or (as a scriptRefusal) if it refuses what is asked.
func (a *Activities) evaluate(ctx context.Context, j job, s traffic.Script, input traffic.Object) (json.RawMessage,
	traffic.FoundScript, error) {
	script, err := a.script(ctx, j.namespace, s)
	if err != nil {
		return nil, script, err
	}
	raw, err := json.Marshal(input)
	if err != nil {
		return nil, script, err
	}
	run := a.scripts.Run
	if script.BuiltIn {
		run = scriptbox.RunInProcess
	}
	answer, err := run(ctx, sandbox.Request{Script: script.Name, Source: script.Source, Input: raw})
	switch {
	case err != nil:
		return nil, script, err
	case answer.Refusal != nil:
		return nil, script, &scriptRefusal{answer.Refusal.Field,
			failure.New(failure.Refused, "%s", answer.Refusal.Reason)}
	case answer.Trouble != nil:
		return nil, script, failure.New(failure.Refused, "%s", answer.Trouble.Message(script.Name))
	default:
		return answer.Output, script, nil
	}
}

// scriptsCacheTime is how long the administrator's scripts are cached.
const scriptsCacheTime = 5 * time.Second

// scriptsRef is the ConfigMap with the scripts of a namespace.
func scriptsRef(namespace string) kube.Ref {
	return configMaps.at(namespace, traffic.ScriptsConfigMap).Ref
}

// kruiseScripts is the ConfigMap that Kruise Rollouts reads. Its scripts apply to all releases in the cluster.
var kruiseScripts = configMaps.at(reference.Namespace, reference.Scripts).Ref

// administratorsConfigMaps returns the ConfigMaps with the administrator's scripts, the first to be used first.
func (a *Activities) administratorsConfigMaps() []kube.Ref {
	if a.options.ScriptsNamespace == "" {
		return []kube.Ref{kruiseScripts}
	}
	return []kube.Ref{scriptsRef(a.options.ScriptsNamespace), kruiseScripts}
}

// administratorsScript returns the first script of this key in the administrator's ConfigMaps, false if there is none.
func (a *Activities) administratorsScript(ctx context.Context, key string, in ...kube.Ref) (traffic.FoundScript, bool,
	error) {
	for _, ref := range in {
		scripts, err := recent.Get(ctx, &a.scriptsCache, ref.Namespace+"/"+ref.Name, scriptsCacheTime,
			func(ctx context.Context) (map[string]string, error) { return a.readScripts(ctx, ref) })
		if scripts[key] != "" || err != nil {
			return traffic.FoundScript{Name: scriptName(ref, key), Source: scripts[key]}, err == nil, err
		}
	}
	return traffic.FoundScript{}, false, nil
}

// readScripts reads the scripts in a ConfigMap. Without permission there are none.
func (a *Activities) readScripts(ctx context.Context, in kube.Ref) (map[string]string, error) {
	found, err := a.get(ctx, place{Ref: in})
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data, _, _ := unstructured.NestedStringMap(found, "data")
	return data, nil
}

// scriptName names a script of a ConfigMap in messages.
func scriptName(in kube.Ref, key string) string {
	return fmt.Sprintf("%s of ConfigMap %s/%s", key, in.Namespace, in.Name)
}

// tenantScript returns a script from the namespace of a workload, false if it has none. Where such scripts are not
// used, the permission to read them is not needed.
func (a *Activities) tenantScript(ctx context.Context, namespace, key string) (traffic.FoundScript, bool, error) {
	in := scriptsRef(namespace)
	script := traffic.FoundScript{Name: scriptName(in, key), Tenant: true}
	if namespace == a.options.ScriptsNamespace {
		return script, false, nil // they are the administrator's
	}
	found, err := a.get(ctx, place{Ref: in})
	if apierrors.IsForbidden(err) && !a.options.Reach.ReadsScriptsOf(namespace) {
		return script, false, nil
	}
	if err != nil {
		return script, false, err
	}
	source, there, _ := unstructured.NestedString(found, "data", key)
	script.Source = source
	return script, there, nil
}

// script finds a script. It fails with failure.Refused if there is none, or if the namespace of the workload has one
// that this worker does not use: another script would route requests in another way than its author expects.
func (a *Activities) script(ctx context.Context, namespace string, s traffic.Script) (traffic.FoundScript, error) {
	own, found, err := a.tenantScript(ctx, namespace, s.Key)
	switch {
	case err != nil:
		return own, err
	case found && !a.options.Reach.ReadsScriptsOf(namespace):
		return own, failure.New(failure.Refused, "%s", a.unusedScript(namespace, own.Name))
	case found:
		return own, nil
	}
	builtIn := traffic.FoundScript{Name: s.File + ".lua (built in)", Source: s.BuiltIn(), BuiltIn: true}
	first := a.administratorsConfigMaps()
	if builtIn.Source != "" && !s.ReferenceFirst {
		first = slices.DeleteFunc(first, func(in kube.Ref) bool { return in == kruiseScripts })
	}
	if script, found, err := a.administratorsScript(ctx, s.Key, first...); found || err != nil {
		return script, err
	}
	if builtIn.Source != "" {
		return builtIn, nil
	}
	return builtIn, failure.New(failure.Refused, "there is no script %s: the administrator of this party's worker can "+
		"write it in %s; built-in classes of Ingress are %s", s.Key, a.whereToWrite(), traffic.Classes)
}

// unusedScript explains why a script from the namespace of a workload is not used.
func (a *Activities) unusedScript(namespace, name string) string {
	return fmt.Sprintf("script %s is not used, since this party's worker uses no scripts of the namespace %s: ask its "+
		"administrator for %s %s, or for the script in %s, and remove it here", name, namespace,
		traffic.FlagTenantScripts, namespace, a.whereToWrite())
}

// whereToWrite names the administrator's ConfigMaps.
func (a *Activities) whereToWrite() string {
	var names []string
	for _, in := range a.administratorsConfigMaps() {
		names = append(names, in.Namespace+"/"+in.Name)
	}
	return "ConfigMap " + strings.Join(names, " or ")
}
