# How a pod of the local stack behaves, as a jq expression over the pod. It replaces "@behaviour@" in the stages.
#
#   annotation dev.slipway.io/behaviour   or an image's tag   what the pod does
#   pull-error                            :bad                cannot pull its image: ImagePullBackOff, manifest unknown
#   crash                                 :crash              crash-loops; fails permanently if its restartPolicy is Never
#   never-ready                           :never-ready        runs and is never ready
#   slow                                  :slow               is ready only after dev.slipway.io/ready-after (default 5s)
#   played                                                    a test's player runs it as processes (test/player); no stage applies
#   (none)                                                    is ready at once; after ready-after, if that is set
#
# The annotation takes precedence over the tags; a tag applies to the container that has it, the annotation to all.
# Among tags the first in the table takes precedence. Further annotations: dev.slipway.io/complete-after (of a Job's
# pod, default 500ms) and dev.slipway.io/delete-after (default 200ms). Durations are Go's: 500ms, 5s, 2m.
(.metadata.annotations["dev.slipway.io/behaviour"] // "") as $asked
| ([(.spec.initContainers // [])[], .spec.containers[]] | map(.image | split(":") | last)) as $tags
| if $asked != "" then $asked
  elif any($tags[]; . == "bad") then "pull-error"
  elif any($tags[]; . == "crash") then "crash"
  elif any($tags[]; . == "never-ready") then "never-ready"
  elif any($tags[]; . == "slow") or .metadata.annotations["dev.slipway.io/ready-after"] then "slow"
  else "healthy" end
