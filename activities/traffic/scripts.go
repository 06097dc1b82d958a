package traffic

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/activities/traffic/scriptbox"
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

// evaluate runs a script, the user's or else the built-in one. It returns the script's output and its name for
// messages. It fails with failure.Refused if there is no script, if it fails, or (as a scriptRefusal) if it refuses
// what is asked.
func (a *Activities) evaluate(ctx context.Context, j job, s traffic.Script, input traffic.Object) (json.RawMessage,
	string, error) {
	source, name, err := a.source(ctx, j.namespace, s)
	if err != nil {
		return nil, "", err
	}
	raw, err := json.Marshal(input)
	if err != nil {
		return nil, name, err
	}
	run := a.scripts.Run
	if source == s.BuiltIn() {
		run = scriptbox.RunInProcess
	}
	answer, err := run(ctx, sandbox.Request{Script: name, Source: source, Input: raw})
	switch {
	case err != nil:
		return nil, name, err
	case answer.Refusal != nil:
		return nil, name, &scriptRefusal{answer.Refusal.Field,
			failure.New(failure.Refused, "%s", answer.Refusal.Reason)}
	case answer.Trouble != nil:
		return nil, name, failure.New(failure.Refused, "%s", answer.Trouble.Message(name))
	default:
		return answer.Output, name, nil
	}
}

// referenceCacheTime is how long the scripts of readReference are cached.
const referenceCacheTime = 5 * time.Second

// readReference reads the scripts in the ConfigMap that Kruise Rollouts reads. They apply to all releases in the
// cluster. Without permission there are none.
func (a *Activities) readReference(ctx context.Context) (map[string]string, error) {
	found, err := a.get(ctx, configMaps.at(reference.Namespace, reference.Scripts))
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data, _, _ := unstructured.NestedStringMap(found, "data")
	return data, nil
}

// source returns the text of a script and its name for messages.
func (a *Activities) source(ctx context.Context, namespace string, s traffic.Script) (source, name string, err error) {
	scripts, err := a.get(ctx, configMaps.at(namespace, traffic.ScriptsConfigMap))
	if err != nil {
		return "", "", err
	}
	if own, found, _ := unstructured.NestedString(scripts, "data", s.Key); found {
		return own, fmt.Sprintf("%s of ConfigMap %s/%s", s.Key, namespace, traffic.ScriptsConfigMap), nil
	}
	builtIn := s.BuiltIn()
	if s.ReferenceFirst || builtIn == "" {
		shared, err := recent.Get(ctx, &a.referenceCache, "scripts", referenceCacheTime, a.readReference)
		if err != nil {
			return "", "", err
		}
		if shared[s.Key] != "" {
			return shared[s.Key], fmt.Sprintf("%s of ConfigMap %s/%s", s.Key, reference.Namespace, reference.Scripts), nil
		}
	}
	if builtIn != "" {
		return builtIn, s.File + ".lua (built in)", nil
	}
	return "", "", failure.New(failure.Refused, "there is no script %s: write it in ConfigMap %s/%s, or in %s/%s, if "+
		"this party's worker may read that; built-in classes of Ingress are %s", s.Key, namespace,
		traffic.ScriptsConfigMap, reference.Namespace, reference.Scripts, traffic.Classes)
}
