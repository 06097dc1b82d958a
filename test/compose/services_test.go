package compose

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
)

func TestComposeServices(t *testing.T) {
	t.Parallel()
	forEachSetup(t, func(t *testing.T, project *types.Project) {
		require.Equal(t, []string{"postgresql", "slipway-server", "slipway-worker", "temporal", "temporal-namespace",
			"temporal-schema", "temporal-ui"},
			project.ServiceNames())
		require.Empty(t, project.DisabledServiceNames(), "`up` must start all services")
	})
}

func TestStartOrder(t *testing.T) {
	t.Parallel()
	forEachSetup(t, func(t *testing.T, project *types.Project) {
		order := startOrder(t, project)
		require.Len(t, order, len(project.Services), "the order must contain every service, so there is no cycle")
		for name, service := range project.Services {
			for needed, how := range service.DependsOn {
				require.Contains(t, project.Services, needed)
				require.True(t, how.Required, "%s: its dependencies must be required", name)
				want := types.ServiceConditionHealthy
				if isJob(project, needed) {
					want = types.ServiceConditionCompletedSuccessfully
				}
				require.Equal(t, want, how.Condition, "%s must wait until %s is healthy or completed, not only started",
					name, needed)
			}
		}
	})
}

// TestServices_DependOnServicesTheyConnectTo checks that a service depends on every service to which it connects,
// directly or transitively.
func TestServices_DependOnServicesTheyConnectTo(t *testing.T) {
	t.Parallel()
	forEachSetup(t, func(t *testing.T, project *types.Project) {
		talks := 0
		for name, service := range project.Services {
			waits := transitiveDependencies(project, name)
			for variable, value := range service.Environment {
				// Names of users and databases look like names of hosts.
				if slices.Contains([]string{"SQL_USER", "POSTGRES_USER", "DBNAME", "TEMPORAL_DATABASE"}, variable) {
					continue
				}
				for other := range project.Services {
					if mentionsHost(*value, other) {
						require.Contains(t, waits, other, "%s connects to %s (%s)", name, other, variable)
						talks++
					}
				}
			}
			if strings.HasPrefix(name, "slipway-") {
				require.Contains(t, waits, "temporal-namespace", "%s needs the namespace", name)
			}
		}
		require.GreaterOrEqual(t, talks, 4, "the schema job and the server connect to PostgreSQL, the namespace job "+
			"and the UI to the server")
		require.Contains(t, transitiveDependencies(project, "temporal"), "temporal-schema",
			"the server fails without its schema")
	})
}

func mentionsHost(value, host string) bool {
	return regexp.MustCompile(`(^|//)` + regexp.QuoteMeta(host) + `(:\d+)?$`).MatchString(value)
}

func transitiveDependencies(project *types.Project, name string) []string {
	var all []string
	for needed := range project.Services[name].DependsOn {
		all = append(all, needed)
		all = append(all, transitiveDependencies(project, needed)...)
	}
	return all
}

func TestHealthChecksAndRestarts(t *testing.T) {
	t.Parallel()
	forEachSetup(t, func(t *testing.T, project *types.Project) {
		for name, service := range project.Services {
			if isJob(project, name) {
				require.Nil(t, service.HealthCheck, "%s is a job", name)
				require.Regexp(t, `^on-failure:\d+$`, service.Restart, "%s must be retried a limited number of times",
					name)
				continue
			}
			check := service.HealthCheck
			require.NotNil(t, check, "%s must have a health check", name)
			require.False(t, check.Disable)
			require.Equal(t, "CMD", check.Test[0], "%s: the check must not need a shell, which the image may lack",
				name)
			require.NotNil(t, check.Interval, name)
			require.NotNil(t, check.Timeout, name)
			require.NotNil(t, check.StartPeriod, "%s must have time to start before a failed check counts", name)
			require.NotNil(t, check.Retries, name)
			require.Equal(t, "unless-stopped", service.Restart, "%s must restart after a crash and a reboot", name)
		}
	})
}

func TestPorts_ArePublishedOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	forEachSetup(t, func(t *testing.T, project *types.Project) {
		for name, service := range project.Services {
			for _, port := range service.Ports {
				require.Equal(t, "127.0.0.1", port.HostIP, "%s publishes %s", name, port.Published)
				require.NotEmpty(t, port.Published, "%s: the port must be fixed", name)
			}
			if service.NetworkMode != "host" {
				continue
			}
			require.Empty(t, service.Ports, "%s uses the host network", name)
			for variable, value := range service.Environment {
				if strings.HasSuffix(variable, "LISTEN") {
					require.Regexp(t, `^127\.0\.0\.1:\d+$`, *value, "%s: %s", name, variable)
				}
			}
		}
		require.Empty(t, project.Services["postgresql"].Ports, "the database must not be published")
	})
}

// TestTemporal_IsNotPublishedByItself: neither Temporal nor its Web UI asks for credentials. The server publishes the
// UI, and asks for the token.
func TestTemporal_IsNotPublishedByItself(t *testing.T) {
	t.Parallel()
	services := load(t, example(t), composeFile).Services
	for name, service := range services {
		if name != "slipway-server" {
			require.Empty(t, service.Ports, name)
		}
	}
	server := services["slipway-server"]
	require.Equal(t, "http://temporal-ui:"+*services["temporal-ui"].Environment["TEMPORAL_UI_PORT"],
		*server.Environment["SLIPWAY_TEMPORAL_UI_UPSTREAM"])
	require.NotEmpty(t, *server.Environment["SLIPWAY_API_TOKEN_FILE"], "the UI asks for this token")
	host := load(t, example(t), composeFile, hostNetworkFile).Services
	require.Equal(t, "http://127.0.0.1:"+host["temporal-ui"].Ports[0].Published,
		*host["slipway-server"].Environment["SLIPWAY_TEMPORAL_UI_UPSTREAM"])
	published := load(t, example(t), composeFile, publishFile).Services["temporal"].Ports
	require.Len(t, published, 1, "for those who want it")
}

var pinned = regexp.MustCompile(`^[a-z0-9/.-]+:v?\d+\.\d+(\.\d+)?[a-z0-9.-]*(@sha256:[0-9a-f]{64})?$`)

func TestImagesArePinned(t *testing.T) {
	t.Parallel()
	require.NotRegexp(t, pinned, "postgres:latest")
	require.NotRegexp(t, pinned, "postgres:17")
	require.NotRegexp(t, pinned, "postgres")
	forEachSetup(t, func(t *testing.T, project *types.Project) {
		for name, service := range project.Services {
			if service.Build != nil {
				require.Equal(t, "deploy/image/Dockerfile", service.Build.Dockerfile, name)
				require.Equal(t, root(t), service.Build.Context, name)
				continue
			}
			require.Regexp(t, pinned, service.Image, "%s must name a fixed version", name)
		}
	})
}

func TestContainers_HaveMinimalPrivileges(t *testing.T) {
	t.Parallel()
	// The PostgreSQL image starts as root, changes the owner of its folder, and continues as the user postgres.
	startsAsRoot := []string{"postgresql"}
	forEachSetup(t, func(t *testing.T, project *types.Project) {
		for name, service := range project.Services {
			require.False(t, service.Privileged, name)
			require.Contains(t, service.SecurityOpt, "no-new-privileges:true", name)
			require.NotZero(t, service.MemLimit, "%s must have a memory limit", name)
			require.NotNil(t, service.Logging, "%s must have a log limit", name)
			require.NotEmpty(t, service.Logging.Options["max-size"], name)
			if !slices.Contains(startsAsRoot, name) {
				require.Equal(t, []string{"ALL"}, service.CapDrop, name)
				require.Empty(t, service.CapAdd, name)
			}
			if strings.HasPrefix(name, "slipway-") {
				require.True(t, service.ReadOnly, "%s must have a read-only root file system", name)
				require.Regexp(t, `^[1-9]\d*:[1-9]\d*$`, service.User, "%s must not run as root", name)
			}
			for _, volume := range service.Volumes {
				if volume.Type == types.VolumeTypeBind {
					require.True(t, volume.ReadOnly, "%s: %s", name, volume.Source)
					require.False(t, bool(volume.Bind.CreateHostPath),
						"%s: a wrong path must be an error, not create an empty folder", name)
				}
			}
		}
	})
}

func TestDatabasePassword_IsNotInEnvironment(t *testing.T) {
	t.Parallel()
	forEachSetup(t, func(t *testing.T, project *types.Project) {
		for name, service := range project.Services {
			for variable, value := range service.Environment {
				require.NotNil(t, value, "%s: %s depends on the caller's environment", name, variable)
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
	require.Equal(t, path, target, "%s must read the file of the secret", service.Name)
	require.NotNil(t, secret.Mode, "%s: the default differs between versions of Compose", service.Name)
	require.Equal(t, types.FileMode(0o444), *secret.Mode, "%s: its user does not own the file", service.Name)
	require.Empty(t, secret.UID+secret.GID, "%s: older versions of Compose do not support it", service.Name)
}

// TestHost_IsReachableFromContainers checks both documented ways to reach the host, since a container on Linux cannot
// reach the host's 127.0.0.1.
func TestHost_IsReachableFromContainers(t *testing.T) {
	t.Parallel()
	ordinary, host := load(t, example(t), composeFile), load(t, example(t), composeFile, hostNetworkFile)
	for _, name := range []string{"slipway-server", "slipway-worker"} {
		require.Equal(t, []string{"host-gateway"}, ordinary.Services[name].ExtraHosts["host.docker.internal"], name)
		require.Equal(t, "host", host.Services[name].NetworkMode, name)
		require.Empty(t, host.Services[name].Networks, "%s must have only the host network", name)
		require.Empty(t, host.Services[name].ExtraHosts, name)
	}
	require.NotEqual(t, "host", host.Services["temporal"].NetworkMode,
		"only services that need the cluster may use the host network")
	temporal := host.Services["temporal"].Ports[0]
	require.Equal(t, "127.0.0.1:"+temporal.Published,
		*host.Services["slipway-worker"].Environment["SLIPWAY_TEMPORAL_ADDRESS"],
		"the worker must use Temporal's published address")
}
