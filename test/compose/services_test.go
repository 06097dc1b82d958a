package compose

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
)

func TestTheServicesOfTheStack(t *testing.T) {
	t.Parallel()
	inEveryArrangement(t, func(t *testing.T, project *types.Project) {
		require.Equal(t, []string{"postgresql", "slipway-server", "slipway-worker", "temporal", "temporal-namespace", "temporal-schema", "temporal-ui"},
			project.ServiceNames())
		require.Empty(t, project.DisabledServiceNames(), "`up` starts them all")
	})
}

func TestStartOrder(t *testing.T) {
	t.Parallel()
	inEveryArrangement(t, func(t *testing.T, project *types.Project) {
		order := startOrder(t, project)
		require.Len(t, order, len(project.Services), "the order has every service, so there is no cycle")
		for name, service := range project.Services {
			for needed, how := range service.DependsOn {
				require.Contains(t, project.Services, needed)
				require.True(t, how.Required, "%s: a dependency that is not required is none", name)
				want := types.ServiceConditionHealthy
				if isJob(project, needed) {
					want = types.ServiceConditionCompletedSuccessfully
				}
				require.Equal(t, want, how.Condition, "%s waits until %s is of use, not just begun", name, needed)
			}
		}
	})
}

// What a service talks to is among what it waits for, directly or through others.
func TestEveryServiceWaitsForWhatItTalksTo(t *testing.T) {
	t.Parallel()
	inEveryArrangement(t, func(t *testing.T, project *types.Project) {
		talks := 0
		for name, service := range project.Services {
			waits := everythingBefore(project, name)
			for variable, value := range service.Environment {
				// Names of users and databases look like names of hosts.
				if slices.Contains([]string{"SQL_USER", "POSTGRES_USER", "DBNAME", "TEMPORAL_DATABASE"}, variable) {
					continue
				}
				for other := range project.Services {
					if mentionsHost(*value, other) {
						require.Contains(t, waits, other, "%s talks to %s (%s)", name, other, variable)
						talks++
					}
				}
			}
			if strings.HasPrefix(name, "slipway-") {
				require.Contains(t, waits, "temporal-namespace", "%s needs the namespace", name)
			}
		}
		require.GreaterOrEqual(t, talks, 4, "the schema job and the server talk to PostgreSQL, the namespace job and the UI to the server")
		require.Contains(t, everythingBefore(project, "temporal"), "temporal-schema", "a server without its schema ends with an error")
	})
}

func mentionsHost(value, host string) bool {
	return regexp.MustCompile(`(^|//)` + regexp.QuoteMeta(host) + `(:\d+)?$`).MatchString(value)
}

func everythingBefore(project *types.Project, name string) []string {
	var all []string
	for needed := range project.Services[name].DependsOn {
		all = append(all, needed)
		all = append(all, everythingBefore(project, needed)...)
	}
	return all
}

func TestHealthChecksAndRestarts(t *testing.T) {
	t.Parallel()
	inEveryArrangement(t, func(t *testing.T, project *types.Project) {
		for name, service := range project.Services {
			if isJob(project, name) {
				require.Nil(t, service.HealthCheck, "%s runs to its end", name)
				require.Regexp(t, `^on-failure:\d+$`, service.Restart, "%s is tried again, and not for ever", name)
				continue
			}
			check := service.HealthCheck
			require.NotNil(t, check, "%s has a health check", name)
			require.False(t, check.Disable)
			require.Equal(t, "CMD", check.Test[0], "%s: without a shell, which the image may not have", name)
			require.NotNil(t, check.Interval, name)
			require.NotNil(t, check.Timeout, name)
			require.NotNil(t, check.StartPeriod, "%s has time to start before a failed check counts", name)
			require.NotNil(t, check.Retries, name)
			require.Equal(t, "unless-stopped", service.Restart, "%s comes back after a crash and a reboot", name)
		}
	})
}

func TestPublishedOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	inEveryArrangement(t, func(t *testing.T, project *types.Project) {
		for name, service := range project.Services {
			for _, port := range service.Ports {
				require.Equal(t, "127.0.0.1", port.HostIP, "%s publishes %s", name, port.Published)
				require.NotEmpty(t, port.Published, "%s: a known port", name)
			}
			if service.NetworkMode != "host" {
				continue
			}
			require.Empty(t, service.Ports, "%s has the network of the machine", name)
			for variable, value := range service.Environment {
				if strings.HasSuffix(variable, "LISTEN") {
					require.Regexp(t, `^127\.0\.0\.1:\d+$`, *value, "%s: %s", name, variable)
				}
			}
		}
		require.Empty(t, project.Services["postgresql"].Ports, "nobody outside needs the database")
	})
}

var pinned = regexp.MustCompile(`^[a-z0-9/.-]+:v?\d+\.\d+(\.\d+)?[a-z0-9.-]*(@sha256:[0-9a-f]{64})?$`)

func TestImagesArePinned(t *testing.T) {
	t.Parallel()
	require.NotRegexp(t, pinned, "postgres:latest")
	require.NotRegexp(t, pinned, "postgres:17")
	require.NotRegexp(t, pinned, "postgres")
	inEveryArrangement(t, func(t *testing.T, project *types.Project) {
		for name, service := range project.Services {
			if service.Build != nil {
				require.Equal(t, "deploy/image/Dockerfile", service.Build.Dockerfile, name)
				require.Equal(t, root(t), service.Build.Context, name)
				continue
			}
			require.Regexp(t, pinned, service.Image, "%s names a version, which stays what it is", name)
		}
	})
}

func TestContainersHaveNoMoreRightsThanTheyNeed(t *testing.T) {
	t.Parallel()
	// The image of PostgreSQL starts as root, makes its folder the database's own and goes on as the user postgres.
	startsAsRoot := []string{"postgresql"}
	inEveryArrangement(t, func(t *testing.T, project *types.Project) {
		for name, service := range project.Services {
			require.False(t, service.Privileged, name)
			require.Contains(t, service.SecurityOpt, "no-new-privileges:true", name)
			require.NotZero(t, service.MemLimit, "%s cannot take the whole memory", name)
			require.NotNil(t, service.Logging, "%s cannot fill the disk with its log", name)
			require.NotEmpty(t, service.Logging.Options["max-size"], name)
			if !slices.Contains(startsAsRoot, name) {
				require.Equal(t, []string{"ALL"}, service.CapDrop, name)
				require.Empty(t, service.CapAdd, name)
			}
			if strings.HasPrefix(name, "slipway-") {
				require.True(t, service.ReadOnly, "%s writes nothing but temporary files", name)
				require.Regexp(t, `^[1-9]\d*:[1-9]\d*$`, service.User, "%s is an ordinary user", name)
			}
			for _, volume := range service.Volumes {
				if volume.Type == types.VolumeTypeBind {
					require.True(t, volume.ReadOnly, "%s: %s", name, volume.Source)
					require.False(t, bool(volume.Bind.CreateHostPath), "%s: a wrong path is an error, not a new empty folder", name)
				}
			}
		}
	})
}

func TestThePasswordIsInNoEnvironment(t *testing.T) {
	t.Parallel()
	inEveryArrangement(t, func(t *testing.T, project *types.Project) {
		for name, service := range project.Services {
			for variable, value := range service.Environment {
				require.NotNil(t, value, "%s: %s is taken from whatever environment there is", name, variable)
				require.NotContains(t, *value, samplePassword, "%s: %s", name, variable)
			}
			if path := service.Environment["DATABASE_PASSWORD_FILE"]; path != nil {
				requireSecret(t, service, *path)
			}
			if path := service.Environment["POSTGRES_PASSWORD_FILE"]; path != nil {
				requireSecret(t, service, *path)
			}
		}
		require.NotNil(t, project.Services["postgresql"].Environment["POSTGRES_PASSWORD_FILE"])
		require.NotNil(t, project.Services["temporal"].Environment["DATABASE_PASSWORD_FILE"])
		require.NotNil(t, project.Services["temporal-schema"].Environment["DATABASE_PASSWORD_FILE"])
		require.NotContains(t, resolved(t, project), samplePassword)
	})
}

func requireSecret(t *testing.T, service types.ServiceConfig, path string) {
	t.Helper()
	require.Len(t, service.Secrets, 1, service.Name)
	secret := service.Secrets[0]
	target := secret.Target
	if target == "" {
		target = "/run/secrets/" + secret.Source
	}
	require.Equal(t, path, target, "%s reads the file that the secret is in", service.Name)
	require.NotNil(t, secret.Mode, "%s: versions of Compose differ in what they take for granted", service.Name)
	require.Equal(t, types.FileMode(0o444), *secret.Mode, "%s: its user is not the owner of the file", service.Name)
	require.Empty(t, secret.UID+secret.GID, "%s: older versions of Compose cannot", service.Name)
}

// On Linux the host's 127.0.0.1 is out of a container's reach; both ways around it that the documentation names are there.
func TestTheMachineCanBeReached(t *testing.T) {
	t.Parallel()
	ordinary, host := load(t, example(t), composeFile), load(t, example(t), composeFile, hostNetworkFile)
	for _, name := range []string{"slipway-server", "slipway-worker"} {
		require.Equal(t, []string{"host-gateway"}, ordinary.Services[name].ExtraHosts["host.docker.internal"], name)
		require.Equal(t, "host", host.Services[name].NetworkMode, name)
		require.Empty(t, host.Services[name].Networks, "%s has one network", name)
		require.Empty(t, host.Services[name].ExtraHosts, name)
	}
	require.NotEqual(t, "host", host.Services["temporal"].NetworkMode, "only who needs the cluster gets the machine's network")
	temporal := host.Services["temporal"].Ports[0]
	require.Equal(t, "127.0.0.1:"+temporal.Published, *host.Services["slipway-worker"].Environment["SLIPWAY_TEMPORAL_ADDRESS"], "Temporal where it is published")
}
