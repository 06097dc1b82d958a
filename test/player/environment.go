package player

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// environment holds the variables of a container. The shell that starts the container passes on only valid shell
// variable names.
type environment map[string]string

func (e environment) list() []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(e)) {
		list = append(list, name+"="+e[name])
	}
	return list
}

var reference = regexp.MustCompile(`\$\$|\$\([^()]*\)`)

// expand replaces $(NAME) with the value of the variable. $$ becomes a dollar sign, and an unknown variable stays
// unchanged.
func (e environment) expand(text string) string {
	return reference.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		if value, known := e[found[2:len(found)-1]]; known {
			return value
		}
		return found
	})
}

func (p *play) environment(c *corev1.Container) (environment, error) {
	name, path, _ := strings.Cut(searchPath, "=")
	env := environment{name: path, "HOME": "/root", "HOSTNAME": p.pod.Name}
	for _, from := range c.EnvFrom {
		data, err := p.envFromSource(from)
		if err != nil {
			return nil, err
		}
		for key, value := range data {
			env[from.Prefix+key] = string(value)
		}
	}
	for _, v := range c.Env {
		if v.ValueFrom == nil {
			env[v.Name] = env.expand(v.Value)
			continue
		}
		value, found, err := p.envValue(v.ValueFrom)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", v.Name, err)
		}
		if found {
			env[v.Name] = value
		}
	}
	return env, nil
}

func (p *play) envFromSource(from corev1.EnvFromSource) (map[string][]byte, error) {
	switch {
	case from.SecretRef != nil:
		return p.secret(from.SecretRef.Name, from.SecretRef.Optional)
	case from.ConfigMapRef != nil:
		return p.configMap(from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
	default:
		return nil, fmt.Errorf("the player supports variables from Secrets and ConfigMaps only")
	}
}

// envValue returns the value of one variable and reports whether it has one.
func (p *play) envValue(from *corev1.EnvVarSource) (value string, found bool, err error) {
	var data map[string][]byte
	var key, name string
	var optional *bool
	switch {
	case from.FieldRef != nil:
		value, err = p.field(from.FieldRef.FieldPath)
		return value, true, err
	case from.SecretKeyRef != nil:
		key, name, optional = from.SecretKeyRef.Key, "Secret "+from.SecretKeyRef.Name, from.SecretKeyRef.Optional
		data, err = p.secret(from.SecretKeyRef.Name, optional)
	case from.ConfigMapKeyRef != nil:
		key, name, optional = from.ConfigMapKeyRef.Key, "ConfigMap "+from.ConfigMapKeyRef.Name,
			from.ConfigMapKeyRef.Optional
		data, err = p.configMap(from.ConfigMapKeyRef.Name, optional)
	default:
		return "", false, fmt.Errorf("the player supports values from fields, Secrets and ConfigMaps only")
	}
	text, found := data[key]
	if err == nil && !found && !isTrue(optional) {
		err = fmt.Errorf("%s has no key %s", name, key)
	}
	return string(text), found, err
}

func isTrue(b *bool) bool { return b != nil && *b }

// field returns a field of the pod by its downward API path.
func (p *play) field(path string) (string, error) {
	for kind, values := range map[string]map[string]string{"labels": p.pod.Labels, "annotations": p.pod.Annotations} {
		if key, is := strings.CutPrefix(path, "metadata."+kind+"['"); is {
			return values[strings.TrimSuffix(key, "']")], nil
		}
		if path == "metadata."+kind {
			var lines []string
			for _, key := range slices.Sorted(maps.Keys(values)) {
				lines = append(lines, fmt.Sprintf("%s=%q", key, values[key]))
			}
			return strings.Join(lines, "\n"), nil
		}
	}
	fields := map[string]string{"metadata.name": p.pod.Name, "metadata.namespace": p.pod.Namespace,
		"metadata.uid":  string(p.pod.UID),
		"spec.nodeName": p.pod.Spec.NodeName, "spec.serviceAccountName": p.pod.Spec.ServiceAccountName,
		"status.podIP": p.status.ip}
	value, known := fields[path]
	if !known {
		return "", fmt.Errorf("the player does not support the field %s", path)
	}
	return value, nil
}

func (p *play) secret(name string, optional *bool) (map[string][]byte, error) {
	secret, err := p.kube.CoreV1().Secrets(p.pod.Namespace).Get(p.ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, unlessOptional(err, optional)
	}
	return secret.Data, nil
}

func (p *play) configMap(name string, optional *bool) (map[string][]byte, error) {
	found, err := p.kube.CoreV1().ConfigMaps(p.pod.Namespace).Get(p.ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, unlessOptional(err, optional)
	}
	data := map[string][]byte{}
	maps.Copy(data, found.BinaryData)
	for key, text := range found.Data {
		data[key] = []byte(text)
	}
	return data, nil
}

func unlessOptional(err error, optional *bool) error {
	if apierrors.IsNotFound(err) && isTrue(optional) {
		return nil
	}
	return err
}
