package task

import (
	"context"
	"slices"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/release/plan"
)

// Names are the display names of services by their IDs.
type Names map[string]string

// ReadNames reads them from the catalogue. They are a help to people: without them the IDs are shown alone.
func ReadNames(ctx context.Context, api *client.Client) Names {
	names := Names{}
	services, err := apiclient.AllPages(0, func(limit int, cursor *string) ([]client.ServiceSummary, string, error) {
		page, err := apiclient.Read[client.ServiceList](api.ListServices(ctx, &client.ListServicesParams{Limit: &limit, Cursor: cursor}))
		return page.Value.Items, page.Value.NextCursor, err
	})
	if err != nil {
		return nil
	}
	for _, s := range services {
		names[s.ID] = s.DisplayName
	}
	return names
}

// Beside is the ID of a service with its display name: "111 (order service)".
func (n Names) Beside(id string) string {
	if name := n[id]; name != "" && name != id {
		return id + " (" + name + ")"
	}
	return id
}

// in is the task as it is drawn, with names beside the IDs of its services.
func (n Names) in(t plan.Task) plan.Task {
	t.Services = slices.Clone(t.Services)
	for i := range t.Services {
		t.Services[i].ServiceID = plan.ServiceID(n.Beside(string(t.Services[i].ServiceID)))
	}
	return t
}
