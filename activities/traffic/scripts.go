package traffic

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/release/rollout/traffic/sandbox"
)

// scriptRefusal is a step that a script says it cannot do. Field is relative to the step.
type scriptRefusal struct {
	field string
	err   error
}

func (r *scriptRefusal) Error() string { return r.err.Error() }

func (r *scriptRefusal) Unwrap() error { return r.err }

// evaluate runs the script: the user's, or else the built-in one. It returns what the script returned and how it is called in messages. It
// fails with failure.Refused when there is none, when it breaks, and (as a scriptRefusal) when it says that it cannot do what is asked.
func (a *Activities) evaluate(ctx context.Context, j job, s traffic.Script, input traffic.Object) (json.RawMessage, string, error) {
	source, name, err := a.source(ctx, j.namespace, s)
	if err != nil {
		return nil, "", err
	}
	raw, err := json.Marshal(input)
	if err != nil {
		return nil, name, err
	}
	answer, err := a.scripts.Run(ctx, sandbox.Request{Script: name, Source: source, Input: raw})
	switch {
	case err != nil:
		return nil, name, err
	case answer.Refusal != nil:
		return nil, name, &scriptRefusal{answer.Refusal.Field, failure.New(failure.Refused, "%s", answer.Refusal.Reason)}
	case answer.Trouble != nil:
		return nil, name, failure.New(failure.Refused, "%s", answer.Trouble.Say(name))
	default:
		return answer.Output, name, nil
	}
}

// source is the text of a script and what it is called.
func (a *Activities) source(ctx context.Context, namespace string, s traffic.Script) (source, name string, err error) {
	scripts, err := a.get(ctx, configMaps.at(namespace, traffic.ScriptsConfigMap))
	if err != nil {
		return "", "", err
	}
	if own, there, _ := unstructured.NestedString(scripts, "data", s.Key); there {
		return own, fmt.Sprintf("%s of ConfigMap %s/%s", s.Key, namespace, traffic.ScriptsConfigMap), nil
	}
	if own := s.BuiltIn(); own != "" {
		return own, s.File + ".lua (built in)", nil
	}
	return "", "", failure.New(failure.Refused, "there is no script %s: write it in ConfigMap %s/%s; built-in classes of Ingress are %s",
		s.Key, namespace, traffic.ScriptsConfigMap, traffic.Classes)
}
