// Package client replaces the client of Temporal's serverless workers, which the local server does not have: it would
// add the SDKs of three clouds and a second Kubernetes client, which take longer to compile than the server itself.
package client

import (
	"context"

	deploymentpb "go.temporal.io/api/deployment/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/auto-scaled-workers/wci/workflow/iface"
	"go.temporal.io/server/common/namespace"
	"go.uber.org/fx"
)

// Client is the interface that worker deployments call.
type Client interface {
	DescribeWorkerControllerInstance(context.Context, *namespace.Namespace, *deploymentpb.WorkerDeploymentVersion) (
		*iface.QueryDescribeWorkerControllerInstanceResponse, []byte, error)
	UpdateWorkerControllerInstance(ctx context.Context, ns *namespace.Namespace,
		version *deploymentpb.WorkerDeploymentVersion, conflictToken []byte, identity string,
		upserts map[string]iface.ScalingGroupSpecUpdate,
		removals []string) (*iface.UpdateWorkerControllerInstanceResponse, error)
	ValidateWorkerControllerInstanceSpec(ctx context.Context, ns *namespace.Namespace,
		version *deploymentpb.WorkerDeploymentVersion, identity string,
		upserts map[string]iface.ScalingGroupSpecUpdate, removals []string) error
	DeleteWorkerControllerInstance(ctx context.Context, ns *namespace.Namespace,
		version *deploymentpb.WorkerDeploymentVersion, identity string) error
}

// Module provides a Client that has no instances and refuses to create one.
var Module = fx.Provide(func() Client { return disabledClient{} })

type disabledClient struct{}

var errLeftOut = serviceerror.NewUnimplemented("the local Temporal server has no serverless workers: use a regular " +
	"Temporal server for them")

// DescribeWorkerControllerInstance answers NotFound, as the server does for a deployment without a compute
// configuration.
func (disabledClient) DescribeWorkerControllerInstance(context.Context, *namespace.Namespace,
	*deploymentpb.WorkerDeploymentVersion) (*iface.QueryDescribeWorkerControllerInstanceResponse, []byte, error) {
	return nil, nil, serviceerror.NewNotFound("no serverless workers")
}

func (disabledClient) UpdateWorkerControllerInstance(context.Context, *namespace.Namespace,
	*deploymentpb.WorkerDeploymentVersion, []byte, string,
	map[string]iface.ScalingGroupSpecUpdate, []string) (*iface.UpdateWorkerControllerInstanceResponse, error) {
	return nil, errLeftOut
}

func (disabledClient) ValidateWorkerControllerInstanceSpec(context.Context, *namespace.Namespace,
	*deploymentpb.WorkerDeploymentVersion, string, map[string]iface.ScalingGroupSpecUpdate, []string) error {
	return errLeftOut
}

// DeleteWorkerControllerInstance has nothing to delete.
func (disabledClient) DeleteWorkerControllerInstance(context.Context, *namespace.Namespace,
	*deploymentpb.WorkerDeploymentVersion, string) error {
	return nil
}
