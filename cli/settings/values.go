package settings

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/release/duration"
	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/workflows"
)

// checks are the validations that settings name. The host of an address to listen on may be empty (all interfaces), and
// its port 0 (a free port), except if the API server must know it.
var checks = map[string]func(text string) error{
	"listen":        func(text string) error { return address(text, 0) },
	"fixed-listen":  func(text string) error { return address(text, 1) },
	"dial":          dialAddress,
	"host":          hostName,
	"network":       network,
	"url":           httpURL,
	"https-url":     secureURL,
	"bucket":        func(text string) error { _, _, err := source.ParseBucket(text); return err },
	"source":        func(text string) error { _, err := source.ParseAllow([]string{text}); return err },
	"namespace":     namespaceName,
	"traffic-kind":  trafficKind,
	"identity":      guard.CheckIdentity,
	"service":       serviceName,
	"party":         partyName,
	"not-empty":     notEmpty,
	"whole-seconds": wholeSeconds,
}

// dialAddress validates an address to connect to, which needs both host and port.
func dialAddress(text string) error {
	if host, _, err := net.SplitHostPort(text); err == nil && host == "" {
		return fmt.Errorf("%q has no host: use, for example, 127.0.0.1:7233", text)
	}
	return address(text, 1)
}

func address(text string, lowest int) error {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return fmt.Errorf("%q is not host:port: use, for example, 127.0.0.1:8080", text)
	}
	return usablePort(text, port, lowest)
}

func usablePort(text, port string, lowest int) error {
	if n, err := strconv.Atoi(port); err != nil || n < lowest || n > 65535 {
		return fmt.Errorf("%q has no valid port: want a number from %d to 65535", text, lowest)
	}
	return nil
}

func httpURL(text string) error {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Host == "" || (parsed.Scheme != "http" && parsed.Scheme != "https") {
		return fmt.Errorf("%q is not an http:// or https:// URL with a host", text)
	}
	if port := parsed.Port(); port != "" {
		if err := usablePort(text, port, 1); err != nil {
			return err
		}
	}
	if parsed.RawQuery != "" || parsed.Fragment != "" {
		return fmt.Errorf("%q has a query or a fragment: want only the base URL", text)
	}
	return nil
}

// secureURL validates a base URL that API servers call, which requires TLS.
func secureURL(text string) error {
	if err := httpURL(text); err != nil {
		return err
	}
	if !strings.HasPrefix(text, "https://") {
		return fmt.Errorf("%q does not start with https://: API servers call only https URLs", text)
	}
	return nil
}

// serviceName validates namespace/name of a Service, with an optional port.
func serviceName(text string) error {
	name, port, ported := strings.Cut(text, ":")
	namespace, name, slashed := strings.Cut(name, "/")
	if !slashed || namespaceName(namespace) != nil || len(validation.IsDNS1035Label(name)) > 0 {
		return fmt.Errorf("%q is not namespace/name or namespace/name:port of a Service", text)
	}
	if ported {
		return usablePort(text, port, 1)
	}
	return nil
}

func notEmpty(text string) error {
	if text == "" {
		return errors.New("must not be empty")
	}
	return nil
}

func boolean(text string) (any, error) {
	if text != "true" && text != "false" {
		return nil, fmt.Errorf("%q must be true or false", text)
	}
	return text == "true", nil
}

func positive(text string) (any, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a whole number", text)
	}
	if n < 1 {
		return nil, fmt.Errorf("%d is too small: want at least 1", n)
	}
	return n, nil
}

// size parses a number of bytes, with an optional Kubernetes unit.
func size(text string) (any, error) {
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a size: use, for example, 500Mi, 2Gi or 1048576", text)
	}
	if quantity.Value() < 1 {
		return nil, fmt.Errorf("%s is too small: want at least 1 byte", text)
	}
	return quantity.Value(), nil
}

func rate(text string) (any, error) {
	n, err := strconv.ParseFloat(text, 32)
	if err != nil {
		return nil, fmt.Errorf("%q is not a number", text)
	}
	// The condition also rejects NaN.
	if !(n > 0 && n < 1e6) {
		return nil, fmt.Errorf("%s is out of range: want more than 0 and less than 1000000", text)
	}
	return float32(n), nil
}

func positiveDuration(text string) (any, error) {
	d, err := duration.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a duration: use, for example, %s", text, duration.Examples)
	}
	if d <= 0 {
		return nil, fmt.Errorf("%s is too short: want more than 0s", text)
	}
	return d, nil
}

// wholeSeconds validates a duration that is transmitted in seconds.
func wholeSeconds(text string) error {
	if d, err := duration.Parse(text); err == nil && d%time.Second != 0 {
		return fmt.Errorf("%s is not a whole number of seconds", text)
	}
	return nil
}

func namespaceName(text string) error {
	if len(validation.IsDNS1123Label(text)) > 0 {
		return fmt.Errorf("%q is not a namespace: want lower-case letters, digits and -, at most 63", text)
	}
	return nil
}

// trafficKind validates a kind that releases may route by.
func trafficKind(text string) error {
	kind, err := traffic.ParseKind(text)
	if err != nil {
		return err
	}
	if reason := kind.Forbidden(); reason != "" {
		return errors.New(reason + ": remove it")
	}
	return nil
}

// hostName validates a host name or an IP address, without a port.
func hostName(text string) error {
	if net.ParseIP(text) == nil && len(validation.IsDNS1123Subdomain(
		strings.ToLower(strings.TrimSuffix(text, ".")))) > 0 {
		return fmt.Errorf("%q is neither a host name nor an IP address: use, for example, slipway.example or "+
			"10.0.0.7, without a port", text)
	}
	return nil
}

// network validates a network in CIDR notation, or one address.
func network(text string) error {
	if _, err := netip.ParsePrefix(text); err != nil && net.ParseIP(text) == nil {
		return fmt.Errorf("%q is neither a network nor an address: use, for example, 10.0.0.0/8 or 10.0.0.7", text)
	}
	return nil
}

// partyName validates "alice", or "alice=queue" for a party with its own queue name.
func partyName(text string) error {
	name, queue, own := strings.Cut(text, "=")
	if len(name) > 63 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return fmt.Errorf("%q is not a party name: want lower-case letters, digits, - and ., at most 63", name)
	}
	if own && (queue == "" || len(queue) > 255) {
		return fmt.Errorf("%q has no valid queue after the =: want 1 to 255 characters", text)
	}
	return queueName(text, queue)
}

// queueName rejects queue names that are probably mistakes: a worker that polls an unused queue looks healthy, but does
// nothing.
func queueName(text, queue string) error {
	illegal := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }
	switch {
	case strings.Contains(queue, "="):
		return fmt.Errorf("%q has a second =: want PARTY or PARTY=QUEUE", text)
	case !utf8.ValidString(queue) || strings.ContainsFunc(queue, illegal):
		return fmt.Errorf("%q has a queue with a space or an unprintable character: want the queue of the Party object",
			text)
	case queue == workflows.QueueEngine:
		return fmt.Errorf("%q has the engine's own queue, which a party's worker cannot serve: want the queue of the "+
			"Party object", text)
	}
	return nil
}

// splitList splits a comma-separated list. It trims elements and drops empty and repeated ones.
func splitList(text string) []string {
	var parts []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	return parts
}

// definition is one setting: a field of Settings with its tags. Values are text until they are parsed; the elements of
// a list are separated by commas.
type definition struct {
	reflect.StructField
	name, help, defaultValue string
	choices                  []string
}

// definitions are all settings, in the order of the documentation.
var definitions = func() []definition {
	var all []definition
	for field := range reflect.TypeFor[Settings]().Fields() {
		tag := field.Tag.Get
		all = append(all, definition{field, tag("name"), tag("help"), tag("default"), strings.Fields(tag("choices"))})
	}
	return all
}()

func definitionOf(name string) (definition, bool) {
	n := slices.IndexFunc(definitions, func(d definition) bool { return d.name == name })
	if n < 0 {
		return definition{}, false
	}
	return definitions[n], true
}

func (d definition) appliesTo(groups ...Group) bool {
	return slices.ContainsFunc(strings.Fields(d.Tag.Get("for")), func(g string) bool {
		return slices.Contains(groups, Group(g))
	})
}

// First returns the first setting of the group.
func First(group Group) string {
	return definitions[slices.IndexFunc(definitions, func(d definition) bool { return d.appliesTo(group) })].name
}

// EnvName returns the environment variable of a setting.
func EnvName(setting string) string {
	return "SLIPWAY_" + strings.ToUpper(strings.ReplaceAll(setting, "-", "_"))
}

// kinds are the types of settings: their names in the help, and how a value is parsed.
var kinds = map[reflect.Type]struct {
	name  string
	parse func(text string) (any, error)
}{
	reflect.TypeFor[string]():        {"string", func(text string) (any, error) { return text, nil }},
	reflect.TypeFor[[]string]():      {kindList, func(text string) (any, error) { return splitList(text), nil }},
	reflect.TypeFor[bool]():          {kindBool, boolean},
	reflect.TypeFor[int]():           {"int", positive},
	reflect.TypeFor[int64]():         {"size", size},
	reflect.TypeFor[float32]():       {"number", rate},
	reflect.TypeFor[time.Duration](): {"duration", positiveDuration},
}

const (
	kindList = "list"
	kindBool = "bool"
)

func (d definition) kind() string { return kinds[d.Type].name }

// set parses and validates a value, and stores it in its field.
func (d definition) set(s *Settings, text string) error {
	value, err := kinds[d.Type].parse(text)
	if err == nil {
		err = d.check(text)
	}
	if err != nil {
		return err
	}
	if strings.HasSuffix(d.Tag.Get("check"), "url") {
		value = strings.TrimRight(text, "/")
	}
	reflect.ValueOf(s).Elem().FieldByIndex(d.Index).Set(reflect.ValueOf(value))
	return nil
}

// check validates a value beyond its type.
func (d definition) check(text string) error {
	if len(d.choices) > 0 && !slices.Contains(d.choices, text) {
		return fmt.Errorf("%q is not one of %s", text, strings.Join(d.choices, ", "))
	}
	if most := d.Tag.Get("max"); most != "" && number(text) > number(most) {
		return fmt.Errorf("%s is too large: want at most %s", text, most)
	}
	check, empty := checks[d.Tag.Get("check")], d.Tag.Get("empty")
	if check == nil || text == "" && (d.defaultValue == "" || empty == "yes") {
		return nil
	}
	if d.kind() != kindList {
		return check(text)
	}
	for part := range strings.SplitSeq(text, ",") {
		if empty == "no" && strings.TrimSpace(part) == "" {
			return fmt.Errorf("%q contains an empty %s: remove it, or set its name", text, d.name)
		}
	}
	for _, part := range splitList(text) {
		if err := check(part); err != nil {
			return err
		}
	}
	return nil
}

// number returns a valid number as a value to compare.
func number(text string) float64 {
	n, _ := strconv.ParseFloat(text, 32)
	return n
}

// Service is a port of a Service of the cluster.
type Service struct {
	Namespace, Name string
	Port            int32
}

// ParseService parses namespace/name or namespace/name:port.
func ParseService(text string) (Service, error) {
	if err := serviceName(text); err != nil {
		return Service{}, err
	}
	text, port, ported := strings.Cut(text, ":")
	s := Service{Port: 443}
	s.Namespace, s.Name, _ = strings.Cut(text, "/")
	if !ported {
		return s, nil
	}
	n, err := strconv.ParseInt(port, 10, 32)
	s.Port = int32(n)
	return s, err
}
