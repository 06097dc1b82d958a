package traffic

import (
	"embed"
	"strings"

	"slipway.io/slipway/release/rollout/strategy"
)

// The names of Istio's object.
const (
	KindVirtualService = "VirtualService"
	GroupIstio         = "networking.istio.io"
)

// ScriptsConfigMap is the name of the ConfigMap, in the workload's namespace, whose scripts come before the built-in ones. They lie with
// the objects that they are for: whoever may change those may write scripts for them, and nobody else's.
const ScriptsConfigMap = "slipway-traffic-scripts"

//go:embed scripts/*.lua
var builtIn embed.FS

// Script names a script: Key is its key in a ConfigMap, File the built-in one, "" when there is none.
type Script struct{ Key, File string }

// ingressFiles are the built-in scripts by class; higress reads the annotations of ingress-nginx.
var ingressFiles = map[string]string{"nginx": "nginx", "higress": "nginx", "mse": "mse", "aliyun-alb": "aliyun-alb"}

// IngressScript is the script for a class of Ingress.
func IngressScript(class string) Script {
	return Script{Key: "lua.traffic.routing.ingress." + class, File: ingressFiles[class]}
}

// CustomScript is the script for a kind of custom object.
func CustomScript(ref strategy.ObjectRef) Script {
	group, _, _ := strings.Cut(ref.APIVersion, "/")
	s := Script{Key: "lua.traffic.routing." + ref.Kind + "." + group}
	if group == GroupIstio && (ref.Kind == KindVirtualService || ref.Kind == "DestinationRule") {
		s.File = ref.Kind
	}
	return s
}

// BuiltIn is the source of the built-in script, "" when there is none.
func (s Script) BuiltIn() string {
	if s.File == "" {
		return ""
	}
	raw, err := builtIn.ReadFile("scripts/" + s.File + ".lua")
	if err != nil {
		return ""
	}
	return string(raw)
}

// Classes are the classes of Ingress that have a built-in script.
const Classes = "aliyun-alb, higress, mse, nginx"
