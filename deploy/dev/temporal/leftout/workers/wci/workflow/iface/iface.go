// Package iface has the types in which Temporal's server speaks of serverless workers.
package iface

import (
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
)

// What a worker deployment asks of a provider of compute: the names and shapes are those that the server compiles against.
type (
	ComputeProviderType  string
	ScalingAlgorithmType string
	ValidationResult     string

	ComputeProviderSpec struct {
		ProviderType  ComputeProviderType
		Config        *commonpb.Payload
		NexusEndpoint string
	}

	ScalingAlgorithmSpec struct {
		ScalingAlgorithm ScalingAlgorithmType
		Config           *commonpb.Payload
	}

	ScalingGroupSpec struct {
		TaskTypes []enumspb.TaskQueueType
		Compute   ComputeProviderSpec
		Scaling   *ScalingAlgorithmSpec
	}

	ScalingGroupSpecUpdate struct {
		Spec       ScalingGroupSpec
		UpdateMask []string
	}

	WorkerControllerInstanceSpec struct {
		ScalingGroupSpecs map[string]ScalingGroupSpec
	}

	ValidationStatus struct {
		Status             ValidationResult
		ErrMessage         string
		LastValidationTime time.Time
	}

	QueryDescribeWorkerControllerInstanceResponse struct {
		Spec             *WorkerControllerInstanceSpec
		ValidationStatus *ValidationStatus
	}

	UpdateWorkerControllerInstanceResponse struct {
		Spec *WorkerControllerInstanceSpec
	}
)

// ValidationResultFailed is the result of a spec that a provider refuses.
const ValidationResultFailed ValidationResult = "failed"
