-- Canary annotations of ALB: by one header with an exact value, by one cookie, or by weight; never by weight together with the others.
local prefix = "alb.ingress.kubernetes.io/"
local annotations = obj.annotations

for _, key in ipairs({ "canary", "canary-by-cookie", "canary-by-header", "canary-by-header-value", "canary-weight", "order" }) do
  annotations[prefix .. key] = nil
end

if obj.stableService == obj.canaryService then
  refuse("", "class aliyun-alb tells the versions apart by their Services, and there is no canary Service here")
end
if obj.requestHeaderModifier then
  refuse("requestHeaderModifier", "class aliyun-alb cannot change the headers of requests to the new version only")
end

annotations[prefix .. "canary"] = "true"
annotations[prefix .. "order"] = "1" -- the canary's rules are evaluated before the stable ones (default 10)
if obj.weight ~= "-1" then
  annotations[prefix .. "canary-weight"] = obj.weight
end

local header, cookie = false, false
for i, match in ipairs(obj.matches or {}) do
  local here = "matches[" .. (i - 1) .. "]"
  if match.path then
    refuse(here .. ".path", "class aliyun-alb cannot match by path with canary annotations")
  end
  if match.queryParams and #match.queryParams > 0 then
    refuse(here .. ".queryParams", "class aliyun-alb cannot match by query parameter with canary annotations")
  end
  if not match.headers or #match.headers ~= 1 then
    refuse(here .. ".headers", "class aliyun-alb compares exactly one header in a match")
  end
  local wanted = match.headers[1]
  if wanted.type == "RegularExpression" then
    refuse(here .. ".headers[0].type", "class aliyun-alb compares exact values only")
  end
  if not wanted.value or wanted.value == "" then
    refuse(here .. ".headers[0].value", "class aliyun-alb cannot ask for an empty value")
  end
  if wanted.name == "canary-by-cookie" then
    if cookie then
      refuse(here, "class aliyun-alb compares one cookie only")
    end
    cookie = true
    annotations[prefix .. "canary-by-cookie"] = wanted.value
  else
    if header then
      refuse(here, "class aliyun-alb compares one header only")
    end
    header = true
    annotations[prefix .. "canary-by-header"] = wanted.name
    annotations[prefix .. "canary-by-header-value"] = wanted.value
  end
end

return annotations
