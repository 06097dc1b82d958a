package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"slipway.io/slipway/pause"
	"slipway.io/slipway/workflows"
)

// attributesTimeout is how long Temporal may take to accept a search attribute that was added: its caches are refreshed
// at least every minute. attributesPause is the pause between two checks.
const attributesTimeout, attributesPause = 90 * time.Second, 100 * time.Millisecond

// ensureSearchAttributes adds missing search attributes: a workflow that writes an unknown one would fail its task
// forever. If this process may not list or add them, it is enough that they exist.
func ensureSearchAttributes(ctx context.Context, c client.Client, namespace string) error {
	wanted := map[string]enumspb.IndexedValueType{}
	for _, key := range workflows.SearchAttributes {
		wanted[key.GetName()] = key.GetValueType()
	}
	known, err := c.OperatorService().ListSearchAttributes(ctx,
		&operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	unlisted := notPermitted(err)
	if unlisted {
		err = queryAttributes(ctx, c, namespace, slices.Sorted(maps.Keys(wanted)))
	}
	var unknown *serviceerror.InvalidArgument
	switch {
	case unlisted && errors.As(err, &unknown):
		return missingError(namespace, wanted, err)
	case err != nil:
		return fmt.Errorf("search attributes of Temporal namespace %s: %w", namespace, err)
	case unlisted:
		return nil
	}
	missing := map[string]enumspb.IndexedValueType{}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		switch have, ok := known.GetCustomAttributes()[name]; {
		case !ok:
			missing[name] = wanted[name]
		case have != wanted[name]:
			return fmt.Errorf("search attribute %s of Temporal namespace %s is a %s, not a %s: remove it", name,
				namespace, have, wanted[name])
		}
	}
	if len(missing) == 0 { // another process may have added them just now
		return awaitSearchAttributes(ctx, c, namespace, slices.Sorted(maps.Keys(wanted)))
	}
	names := slices.Sorted(maps.Keys(missing))
	_, err = c.OperatorService().AddSearchAttributes(ctx,
		&operatorservice.AddSearchAttributesRequest{Namespace: namespace, SearchAttributes: missing})
	switch {
	case notPermitted(err):
		return missingError(namespace, missing, err)
	case err != nil:
		return fmt.Errorf("cannot add search attributes %v to Temporal namespace %s: %w", names, namespace, err)
	}
	return awaitSearchAttributes(ctx, c, namespace, names)
}

// missingError is the error if search attributes are missing and this process may not add them.
func missingError(namespace string, missing map[string]enumspb.IndexedValueType, because error) error {
	//nolint:staticcheck // a name
	return fmt.Errorf("Temporal namespace %s lacks search attributes, and this process may not add them: grant it "+
		"the right, or have an administrator run `%s`: %w", namespace, createCommand(namespace, missing), because)
}

// notPermitted reports whether Temporal refuses a call to this process, or to all: a service may reserve operator calls
// for itself.
func notPermitted(err error) bool {
	var denied *serviceerror.PermissionDenied
	var missing *serviceerror.Unimplemented
	return errors.As(err, &denied) || errors.As(err, &missing)
}

// createCommand is the Temporal CLI command that adds the search attributes.
func createCommand(namespace string, missing map[string]enumspb.IndexedValueType) string {
	command := "temporal operator search-attribute create --namespace " + namespace
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		command += fmt.Sprintf(" --name %s --type %s", name, missing[name])
	}
	return command
}

// queryAttributes runs a count query with these attributes, which fails if one of them is unknown. It needs no result.
func queryAttributes(ctx context.Context, c client.Client, namespace string, names []string) error {
	query := strings.Join(names, " IS NULL OR ") + " IS NULL"
	_, err := c.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: namespace, Query: query})
	return err
}

// awaitSearchAttributes waits until Temporal's frontend accepts attributes that were added: until then it refuses
// releases that carry them.
func awaitSearchAttributes(ctx context.Context, c client.Client, namespace string, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, attributesTimeout)
	defer cancel()
	for {
		err := queryAttributes(ctx, c, namespace, names)
		if err == nil {
			return nil
		}
		if pause.For(ctx, attributesPause) != nil {
			return fmt.Errorf("search attributes %v exist in Temporal namespace %s, but queries still reject them "+
				"after %s: %w", names, namespace, attributesTimeout, err)
		}
	}
}
