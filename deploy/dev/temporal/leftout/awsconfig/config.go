// Package config replaces the configuration of AWS clients, which Temporal's server compiles in for archives in S3 and
// for signed requests to Elasticsearch. The local server has neither: there is no configuration to load.
package config

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
)

var errLeftOut = errors.New("the local Temporal server uses no AWS service: use a regular Temporal server for it")

type (
	// LoadOption is an option of LoadDefaultConfig, which ignores it.
	LoadOption struct{}
	// EnvConfig is the configuration from the environment.
	EnvConfig struct{ Credentials aws.Credentials }
)

func LoadDefaultConfig(context.Context, ...LoadOption) (aws.Config, error) {
	return aws.Config{}, errLeftOut
}

func NewEnvConfig() (EnvConfig, error) { return EnvConfig{}, errLeftOut }

func WithRegion(string) LoadOption { return LoadOption{} }

func WithClientLogMode(aws.ClientLogMode) LoadOption { return LoadOption{} }
